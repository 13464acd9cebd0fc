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

/// What other blocks of the same kernel have written: of the cache that all have.
__device__ __forceinline__ void load_shared(const float* from, float (&to)[1]) {
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(to[0]) : "l"(from) : "memory");
}
__device__ __forceinline__ void load_shared(const float* from, float (&to)[4]) {
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "l"(from)
               : "memory");
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

template <int n>
inline void load_shared(const float* from, float (&to)[n]) {
  for (int i = 0; i < n; ++i) to[i] = from[i];
}

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

/// Whether this block is the last of `blocks` that come here, each of them once. Then it may read what the others
/// wrote before, by load_shared(): all their threads, or with `by_first` their first one. `*counter` is 0 before the
/// first and after the last.
template <bool by_first = false>
__device__ __forceinline__ bool comes_last(u32* counter, u32 blocks) {
  __shared__ bool is_last;
  if (!by_first) {
    __threadfence();
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicInc(counter, blocks - 1) == blocks - 1;
  }
  __syncthreads();
  if (is_last) __threadfence();
  return is_last;
}

/// The sums of `rows` rows that are `stride` apart, of the columns from `begin` to `end`, a multiple of n columns.
template <int n>
__device__ __forceinline__ void add_rows(const float* from, int rows, i64 stride, float* to, int begin, int end) {
  constexpr int kAtOnce = 8;
  for (int at = begin + threadIdx.x * n; at < end; at += blockDim.x * n) {
    Pack<float, n> sum = {};
    for (int row = 0; row < rows; row += kAtOnce) {
      float some[kAtOnce][n] = {};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (row + i < rows) load_shared(from + (row + i) * stride + at, some[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
        for (int j = 0; j < n; ++j) sum.at[j] += some[i][j];
      }
    }
    store(to + at, sum);
  }
}

/// The end of a kernel of `parts` blocks for each tile of columns, each of which has written its sums of the columns
/// from `begin` to `end` to its row of `sums.partial` [parts, width]. The last block of a group of parts adds theirs,
/// and the last of these blocks adds those of the groups: always in one order, whichever block it is.
template <int n>
__device__ __forceinline__ void add_block_sums(const BlockSums& sums, int tile, int part, int parts, int width,
                                               int begin, int end) {
  if (sums.counters == nullptr) return;
  const int groups = (parts + sums.group - 1) / sums.group, group = part / sums.group, first = group * sums.group;
  const int of_group = parts - first < sums.group ? parts - first : sums.group;
  u32* const counters = sums.counters + tile * (groups + 1);
  float* const mine = sums.partial + (i64)first * width;
  if (!comes_last(counters + 1 + group, of_group)) return;
  add_rows<n>(mine, of_group, width, groups == 1 ? sums.totals : mine, begin, end);
  if (groups == 1 || !comes_last(counters, groups)) return;
  add_rows<n>(sums.partial, groups, (i64)sums.group * width, sums.totals, begin, end);
}

/// Where a pack of four columns begins, of a row that has `lanes` threads of a block; packs of a thread lie `lanes`
/// apart.
__device__ __forceinline__ int column_of_row(int pack, int lanes) {
  return (int)(pack * lanes + threadIdx.x % lanes) * 4;
}

/// Packs of all columns of a row, if a block does several rows.
enum { kSharedPacks = 1024 };

/// Adds what the rows of a block have, in one order, and writes it to `to` [width].
template <int packs>
__device__ __forceinline__ void store_of_rows(const float (&mine)[packs][4], float* to, int lanes, int width,
                                              Pack<float, 4>* added) {
  const int rows = blockDim.x / lanes, own = threadIdx.x / lanes;
  for (int row = 0; row < rows; ++row) {
    if (row > 0) __syncthreads();
    if (own != row) continue;
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      const int column = column_of_row(i, lanes);
      if (column >= width) continue;
      Pack<float, 4> sum;
#pragma unroll
      for (int j = 0; j < 4; ++j) sum.at[j] = mine[i][j];
      if (row > 0) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum.at[j] += added[column / 4].at[j];
      }
      if (row == rows - 1) {
        store(to + column, sum);
      } else {
        added[column / 4] = sum;
      }
    }
  }
  // `added` may be used again.
  __syncthreads();
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
