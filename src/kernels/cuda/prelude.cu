// What every kernel may use. Kernels are compiled by NVRTC, which has no headers, and by the host's compiler
// for the tests, which run them on an emulator of blocks (tests/support/block_emulator.hpp).

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct bf16 {
  u16 bits;
};
struct fp16 {
  u16 bits;
};

template <class T>
__device__ __forceinline__ T rounded(float value);

#ifdef __CUDACC_RTC__

/// Otherwise ends the kernel, and every later call of CUDA fails, as after a kernel of LibTorch that was given
/// a label which is not a class.
__device__ __forceinline__ void require(bool holds, const char* expected) {
  if (!holds) __assertfail(expected, "lockstep", 0, "kernel", 1);
}

__device__ __forceinline__ float to_float(fp16 value) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
}
template <>
__device__ __forceinline__ bf16 rounded<bf16>(float value) {
  bf16 narrow;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
  return narrow;
}
template <>
__device__ __forceinline__ fp16 rounded<fp16>(float value) {
  fp16 narrow;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
  return narrow;
}

#else

inline float to_float(fp16 value) { return emulated_half_to_float(value.bits); }
template <>
inline bf16 rounded<bf16>(float value) {
  return {emulated_float_to_bfloat16(value)};
}
template <>
inline fp16 rounded<fp16>(float value) {
  return {emulated_float_to_half(value)};
}

#endif

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(bf16 value) { return __uint_as_float((u32)value.bits << 16); }
/// To the nearest, and to the even one of two.
template <>
__device__ __forceinline__ float rounded<float>(float value) {
  return value;
}

/// Values that are read and written at once: at most 16 bytes, at a multiple of their size.
template <class T, int n>
struct alignas(sizeof(T) * n) Pack {
  T at[n];
};

/// As many as 16 bytes have.
template <class T>
constexpr int kPack = 16 / sizeof(T);

template <class T, int n = kPack<T>>
__device__ __forceinline__ Pack<T, n> load(const T* from) {
  return *reinterpret_cast<const Pack<T, n>*>(from);
}
template <class T, int n>
__device__ __forceinline__ void store(T* to, const Pack<T, n>& pack) {
  *reinterpret_cast<Pack<T, n>*>(to) = pack;
}

constexpr u32 kWholeWarp = 0xffffffffu;

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(kWholeWarp, value, offset);
  return value;
}

/// The sum over all threads of a block of whole warps, in one order. `room`: 32 numbers of shared memory,
/// which may be used again after the call.
__device__ __forceinline__ float block_sum(float value, float* room) {
  value = warp_sum(value);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (lane == 0) room[warp] = value;
  __syncthreads();
  value = warp_sum(lane < warps ? room[lane] : 0.0f);
  __syncthreads();
  return value;
}

/// The tensor of a list that a block works on: the last one whose first block is not after it.
template <class Tensors>
__device__ __forceinline__ int tensor_of_block(const Tensors& tensors, i64 block) {
  int first = 0, after = (int)tensors.count;
  while (after - first > 1) {
    const int middle = (first + after) / 2;
    if (tensors.at[middle].first_block <= block) {
      first = middle;
    } else {
      after = middle;
    }
  }
  return first;
}

/// GELU, of the error function or of its approximation by tanh, and its derivative.
template <bool by_tanh>
__device__ __forceinline__ float gelu_of(float x) {
  if (!by_tanh) return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
  const float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.0f + tanhf(inner));
}

template <bool by_tanh>
__device__ __forceinline__ float gelu_slope(float x) {
  if (!by_tanh) {
    const float density = 0.39894228040143268f * __expf(-0.5f * x * x);
    return 0.5f * (1.0f + erff(x * 0.70710678118654752f)) + x * density;
  }
  const float square = x * x;
  const float turned = tanhf(0.79788456080286536f * x * (1.0f + 0.044715f * square));
  const float slope = 0.79788456080286536f * (1.0f + 3.0f * 0.044715f * square);
  return 0.5f * (1.0f + turned) + 0.5f * x * (1.0f - turned * turned) * slope;
}
