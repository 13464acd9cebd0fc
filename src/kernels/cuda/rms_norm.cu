// Root mean square normalization of a residual to which a branch is added: the sum and its norm, which the next
// product reads, are written in one pass. A row is done by `lanes` threads: by a warp, of which a block has
// several, or by a block. Rows are read as packs of four, packs of a thread lie `lanes` apart.

constexpr int kRmsPack = 4;

/// Over the threads of a row, which is a warp's or a block's. `room`: 32 numbers.
__device__ __forceinline__ float rms_row_sum(float value, int lanes, float* room) {
  return lanes == 32 ? warp_sum(value) : block_sum(value, room);
}

/// The same where a block does several rows, by several warps each.
__device__ __forceinline__ float rms_sum_of_rows(float value, int lanes, float* room) {
  value = warp_sum(value);
  if (lanes == 32) return value;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = lanes / 32, first = warp / warps * warps;
  if (lane == 0) room[warp] = value;
  __syncthreads();
  value = warp_sum(lane < warps ? room[first + lane] : 0.0f);
  __syncthreads();
  return value;
}

template <class T>
__device__ __forceinline__ Pack<float, kRmsPack> rms_scale(const RmsWeight& weight, int column) {
  Pack<float, kRmsPack> scale;
  if (weight.wide != nullptr) {
    scale = load<float, kRmsPack>(weight.wide + column);
  } else {
    const Pack<T, kRmsPack> pack = load<T, kRmsPack>((const T*)weight.narrow + column);
#pragma unroll
    for (int j = 0; j < kRmsPack; ++j) scale.at[j] = to_float(pack.at[j]);
  }
#pragma unroll
  for (int j = 0; j < kRmsPack; ++j) scale.at[j] += weight.offset;
  return scale;
}

/// `residual` [rows, width] in R, float or T. `branch`, `sum` and `inverses` may be null.
template <class R, class T, int packs>
__global__ void __launch_bounds__(512, 1)
    rms_norm(const R* residual, const T* branch, R* sum, T* normed, RmsWeight weight, float* inverses,
             i64 rows, int width, int lanes, float epsilon) {
  __shared__ float room[32];
  const i64 row = (i64)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
  if (row >= rows) return;
  float values[packs][kRmsPack];
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < packs; ++i) {
    const int column = column_of_row(i, lanes);
    if (column >= width) continue;
    const i64 at = row * width + column;
    Pack<R, kRmsPack> pack = load<R, kRmsPack>(residual + at);
    if (branch != nullptr) {
      const Pack<T, kRmsPack> added = load<T, kRmsPack>(branch + at);
#pragma unroll
      for (int j = 0; j < kRmsPack; ++j) pack.at[j] = rounded<R>(to_float(pack.at[j]) + to_float(added.at[j]));
    }
    if (sum != nullptr) store(sum + at, pack);
#pragma unroll
    for (int j = 0; j < kRmsPack; ++j) {
      values[i][j] = to_float(pack.at[j]);
      squares += values[i][j] * values[i][j];
    }
  }
  const float inverse = rsqrtf(rms_row_sum(squares, lanes, room) / width + epsilon);
  if (inverses != nullptr && threadIdx.x % lanes == 0) inverses[row] = inverse;
#pragma unroll
  for (int i = 0; i < packs; ++i) {
    const int column = column_of_row(i, lanes);
    if (column >= width) continue;
    const Pack<float, kRmsPack> scale = rms_scale<T>(weight, column);
    Pack<T, kRmsPack> result;
#pragma unroll
    for (int j = 0; j < kRmsPack; ++j) result.at[j] = rounded<T>(values[i][j] * inverse * scale.at[j]);
    store(normed + row * width + column, result);
  }
}

/// The gradient by the sum, which is that by the residual and that by the branch, of those of the results,
/// each of which may be null. `values`: the sum. `block_sums`: of the gradient by the weight; its parts are the
/// blocks.
template <class R, class T, int packs>
__global__ void __launch_bounds__(512, 1)
    rms_norm_backward(const T* normed, const R* sum, const R* values, RmsWeight weight, const float* inverses,
                      R* by_residual, T* by_branch, BlockSums block_sums, i64 rows, int width, int lanes) {
  __shared__ float room[32];
  __shared__ Pack<float, kRmsPack> added[kSharedPacks];
  const int rows_of_block = blockDim.x / lanes;
  float by_weight[packs][kRmsPack] = {};
  for (i64 first = (i64)blockIdx.x * rows_of_block; first < rows; first += (i64)gridDim.x * rows_of_block) {
    const i64 row = first + threadIdx.x / lanes;
    // Others of the block may have one, and all threads come to their barriers.
    const int columns = row < rows ? width : 0;
    const float inverse = row < rows ? inverses[row] : 0.0f;
    float gradients[packs][kRmsPack], normed_values[packs][kRmsPack];
    float products = 0.0f;
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      const int column = column_of_row(i, lanes);
      if (column >= columns) continue;
      const i64 at = row * width + column;
      const Pack<R, kRmsPack> value = load<R, kRmsPack>(values + at);
      const Pack<float, kRmsPack> scale = rms_scale<T>(weight, column);
#pragma unroll
      for (int j = 0; j < kRmsPack; ++j) {
        gradients[i][j] = 0.0f;
        normed_values[i][j] = to_float(value.at[j]) * inverse;
      }
      if (normed == nullptr) continue;
      const Pack<T, kRmsPack> given = load<T, kRmsPack>(normed + at);
#pragma unroll
      for (int j = 0; j < kRmsPack; ++j) {
        gradients[i][j] = to_float(given.at[j]);
        by_weight[i][j] += gradients[i][j] * normed_values[i][j];
        gradients[i][j] *= scale.at[j];
        products += gradients[i][j] * normed_values[i][j];
      }
    }
    const float mean_product = rms_sum_of_rows(products, lanes, room) / width;
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      const int column = column_of_row(i, lanes);
      if (column >= columns) continue;
      const i64 at = row * width + column;
      float results[kRmsPack];
#pragma unroll
      for (int j = 0; j < kRmsPack; ++j)
        results[j] = inverse * (gradients[i][j] - normed_values[i][j] * mean_product);
      if (sum != nullptr) {
        const Pack<R, kRmsPack> pack = load<R, kRmsPack>(sum + at);
#pragma unroll
        for (int j = 0; j < kRmsPack; ++j) results[j] += to_float(pack.at[j]);
      }
      if (by_residual != nullptr) {
        Pack<R, kRmsPack> pack;
#pragma unroll
        for (int j = 0; j < kRmsPack; ++j) pack.at[j] = rounded<R>(results[j]);
        store(by_residual + at, pack);
      }
      if (by_branch == nullptr) continue;
      Pack<T, kRmsPack> pack;
#pragma unroll
      for (int j = 0; j < kRmsPack; ++j) pack.at[j] = rounded<T>(results[j]);
      store(by_branch + at, pack);
    }
  }
  if (block_sums.partial == nullptr) return;
  store_of_rows(by_weight, block_sums.partial + (i64)blockIdx.x * width, lanes, width, added);
  add_block_sums<kRmsPack>(block_sums, 0, blockIdx.x, gridDim.x, width, 0, width);
}
