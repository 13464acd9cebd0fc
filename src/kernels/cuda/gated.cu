// Gated feed-forward layers: an activation of a gate times the values that it lets through.

/// The host's Gate has the same numbers.
enum GateActivation { kGateSilu = 0, kGateGelu = 1, kGateGeluTanh = 2 };

template <int activation>
__device__ __forceinline__ float gate_of(float x) {
  if (activation == kGateSilu) return x / (1.0f + __expf(-x));
  return gelu_of<activation == kGateGeluTanh>(x);
}

template <int activation>
__device__ __forceinline__ float gate_slope(float x) {
  if (activation == kGateSilu) {
    const float share = 1.0f / (1.0f + __expf(-x));
    return share * (1.0f + x * (1.0f - share));
  }
  return gelu_slope<activation == kGateGeluTanh>(x);
}

/// A pack of a thread: of which row, and where it begins there.
struct GatePlace {
  i64 row;
  int column;
};

template <int n>
__device__ __forceinline__ GatePlace gate_place(int width) {
  const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  const int packs = width / n;
  return {index / packs, (int)(index % packs) * n};
}

/// `gate`, `up` and `results` have rows of `width`, a multiple of 8; those of the results lie side by side.
template <class T, int activation>
__global__ void __launch_bounds__(256)
    gated(const T* gate, const T* up, T* results, GateStrides strides, i64 rows, int width) {
  constexpr int n = kPack<T>;
  const auto [row, column] = gate_place<n>(width);
  if (row >= rows) return;
  const Pack<T, n> gates = load(gate + row * strides.gate + column), ups = load(up + row * strides.up + column);
  Pack<T, n> result;
#pragma unroll
  for (int i = 0; i < n; ++i)
    result.at[i] = rounded<T>(gate_of<activation>(to_float(gates.at[i])) * to_float(ups.at[i]));
  store(results + row * width + column, result);
}

/// The gradients by both, whose rows lie `result_stride` apart, of those of the results.
template <class T, int activation>
__global__ void __launch_bounds__(256)
    gated_backward(const T* gradients, const T* gate, const T* up, T* by_gate, T* by_up, GateStrides strides,
                   i64 result_stride, i64 rows, int width) {
  constexpr int n = kPack<T>;
  const auto [row, column] = gate_place<n>(width);
  if (row >= rows) return;
  const Pack<T, n> gradient = load(gradients + row * width + column);
  const Pack<T, n> gates = load(gate + row * strides.gate + column), ups = load(up + row * strides.up + column);
  Pack<T, n> of_gate, of_up;
#pragma unroll
  for (int i = 0; i < n; ++i) {
    const float x = to_float(gates.at[i]), given = to_float(gradient.at[i]);
    of_gate.at[i] = rounded<T>(given * to_float(ups.at[i]) * gate_slope<activation>(x));
    of_up.at[i] = rounded<T>(given * gate_of<activation>(x));
  }
  store(by_gate + row * result_stride + column, of_gate);
  store(by_up + row * result_stride + column, of_up);
}
