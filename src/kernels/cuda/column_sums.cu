// The sums of the columns of a matrix in float32: a block sums some rows of a tile of columns, in one order, and the
// last ones sum what the blocks had.

/// A column's warps, whose rows a block adds.
enum { kWarpsOfTile = 8 };

/// Adds the sums of a block's warps: `mine`, of n columns of each lane. Then those of all blocks are added.
template <int n>
__device__ __forceinline__ void store_sums(const float (&mine)[n], const BlockSums& sums, int width) {
  __shared__ float room[kWarpsOfTile][32 * n + 4];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < n; ++i) room[warp][lane * n + i] = mine[i];
  __syncthreads();
  const int first = blockIdx.x * 32 * n;
  for (int at = threadIdx.x; at < 32 * n; at += blockDim.x) {
    if (first + at >= width) continue;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kWarpsOfTile; ++i) sum += room[i][at];
    sums.partial[(i64)blockIdx.y * width + first + at] = sum;
  }
  const int end = first + 32 * n < width ? first + 32 * n : width;
  add_block_sums<1>(sums, blockIdx.x, blockIdx.y, gridDim.y, width, first, end);
}

/// The rows of a block: each of the second dimension has as many.
struct Rows {
  i64 begin, end;
};

__device__ __forceinline__ Rows rows_of_block(i64 rows) {
  const i64 each = (rows + gridDim.y - 1) / gridDim.y, begin = blockIdx.y * each;
  return {begin, begin + each < rows ? begin + each : rows};
}

/// `values` [rows, width], whose width is a multiple of 8; the parts of `block_sums` are gridDim.y.
template <class T>
__global__ void __launch_bounds__(256) column_sums(const T* values, BlockSums block_sums, i64 rows, int width) {
  constexpr int n = kPack<T>;
  const int column = (blockIdx.x * 32 + threadIdx.x % 32) * n;
  const Rows mine = rows_of_block(rows);
  float sums[n] = {};
  if (column < width) {
    for (i64 row = mine.begin + threadIdx.x / 32; row < mine.end; row += kWarpsOfTile) {
      const Pack<T, n> pack = load(values + row * width + column);
#pragma unroll
      for (int i = 0; i < n; ++i) sums[i] += to_float(pack.at[i]);
    }
  }
  store_sums(sums, block_sums, width);
}

/// `count` values, at most 8 more than a multiple of 8 of them are read; all in one pass.
template <class T, bool by_tanh>
__global__ void __launch_bounds__(256) gelu_forward(const T* values, T* results, i64 count) {
  constexpr int n = kPack<T>;
  const i64 at = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * n;
  if (at >= count) return;
  Pack<T, n> pack = load(values + at);
#pragma unroll
  for (int i = 0; i < n; ++i) pack.at[i] = rounded<T>(gelu_of<by_tanh>(to_float(pack.at[i])));
  store(results + at, pack);
}

/// The gradient by the values of GELU, and its column sums: that of a bias that was added to them. `gradients`
/// of the results; all [rows, width].
template <class T, bool by_tanh>
__global__ void __launch_bounds__(256) gelu_backward(const T* gradients, const T* values, T* results,
                                                     BlockSums block_sums, i64 rows, int width) {
  constexpr int n = kPack<T>;
  const int column = (blockIdx.x * 32 + threadIdx.x % 32) * n;
  const Rows mine = rows_of_block(rows);
  float sums[n] = {};
  if (column < width) {
    for (i64 row = mine.begin + threadIdx.x / 32; row < mine.end; row += kWarpsOfTile) {
      const i64 at = row * width + column;
      const Pack<T, n> gradient = load(gradients + at), value = load(values + at);
      Pack<T, n> result;
#pragma unroll
      for (int i = 0; i < n; ++i) {
        result.at[i] = rounded<T>(to_float(gradient.at[i]) * gelu_slope<by_tanh>(to_float(value.at[i])));
        sums[i] += to_float(result.at[i]);
      }
      store(results + at, result);
    }
  }
  if (block_sums.partial != nullptr) store_sums(sums, block_sums, width);
}

/// Writes the columns of the parts side by side, [rows, width], and sums them as column_sums() does, if
/// that is wanted.
template <class T>
__global__ void __launch_bounds__(256)
    join_columns(JoinedParts parts, T* results, BlockSums block_sums, i64 rows, int width) {
  constexpr int n = kPack<T>;
  const int column = (blockIdx.x * 32 + threadIdx.x % 32) * n;
  const Rows mine = rows_of_block(rows);
  float sums[n] = {};
  if (column < width) {
    int first = 0;
    JoinedPart part = parts.at[0];
#pragma unroll
    for (int i = 1; i < JoinedParts::kMost; ++i) {
      if (column < part.end) continue;
      first = part.end;
      part = parts.at[i];
    }
    const T* const from = (const T*)part.from + (column - first);
    for (i64 row = mine.begin + threadIdx.x / 32; row < mine.end; row += kWarpsOfTile) {
      Pack<T, n> pack = {};
      if (part.from != nullptr) pack = load(from + row * part.row_stride);
#pragma unroll
      for (int i = 0; i < n; ++i) sums[i] += to_float(pack.at[i]);
      store(results + row * width + column, pack);
    }
  }
  if (block_sums.partial != nullptr) store_sums(sums, block_sums, width);
}
