// Two gradients times the gradient of their loss, in place: nothing is read or written where that is 1.

constexpr int kFactorThreads = 256;
/// Elements of a block.
constexpr int kFactorPart = kFactorThreads * 4 * 8;

/// The part of a block. The factor is rounded to the dtype first, as by a cast.
template <class T>
__device__ __forceinline__ void multiply_part(T* values, i64 count, i64 block, float factor) {
  const float rounded_factor = to_float(rounded<T>(factor));
  const i64 begin = block * kFactorPart, end = begin + kFactorPart < count ? begin + kFactorPart : count;
  const i64 whole = (u64)values % (4 * sizeof(T)) == 0 ? begin + (end - begin) / 4 * 4 : begin;
  for (i64 at = begin + threadIdx.x * 4; at < whole; at += kFactorThreads * 4) {
    Pack<T, 4> pack = load<T, 4>(values + at);
#pragma unroll
    for (int i = 0; i < 4; ++i) pack.at[i] = rounded<T>(__fmul_rn(to_float(pack.at[i]), rounded_factor));
    store(values + at, pack);
  }
  for (i64 at = whole + threadIdx.x; at < end; at += kFactorThreads)
    values[at] = rounded<T>(__fmul_rn(to_float(values[at]), rounded_factor));
}

/// The first blocks are those of `first`.
template <class A, class B>
__global__ void __launch_bounds__(kFactorThreads)
    multiply_gradients(A* first, i64 first_count, B* second, i64 second_count, const float* factor) {
  const float by = *factor;
  if (by == 1.0f) return;
  const i64 block = blockIdx.x, of_first = (first_count + kFactorPart - 1) / kFactorPart;
  if (block < of_first) return multiply_part(first, first_count, block, by);
  multiply_part(second, second_count, block - of_first, by);
}
