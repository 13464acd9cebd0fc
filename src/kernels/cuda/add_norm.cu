// Layer normalization of a residual to which a branch is added, one block a row: the sum, its norm and what
// the next product reads are written in one pass. Rows are read as packs of four, packs of a thread lie
// blockDim.x apart.

constexpr int kFour = 4;

/// Where a pack of this thread begins.
__device__ __forceinline__ int column_of(int pack) { return (int)(pack * blockDim.x + threadIdx.x) * kFour; }

/// Two sums over the `lanes` threads of a row of a block that does several; `room`: 64 numbers.
struct Two {
  float a, b;
};

__device__ __forceinline__ Two row_sums(Two value, int lanes, float* room) {
  value.a = warp_sum(value.a);
  value.b = warp_sum(value.b);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = lanes / 32, first = warp / warps * warps;
  if (lane == 0) {
    room[warp] = value.a;
    room[32 + warp] = value.b;
  }
  __syncthreads();
  value.a = warp_sum(lane < warps ? room[first + lane] : 0.0f);
  value.b = warp_sum(lane < warps ? room[32 + first + lane] : 0.0f);
  __syncthreads();
  return value;
}

/// Any of `residual` [rows, width] and `branch` may be null, but not both, and any of the results: `sum` of
/// both, and its norm as `narrow` and as `wide`; `means` and `inverses` both, or none.
template <class T, int packs>
__global__ void __launch_bounds__(512, 1) add_norm(const float* residual, const T* branch, float* sum, T* narrow,
                                                float* wide, const float* gamma, const float* beta,
                                                float* means, float* inverses, int width, float epsilon) {
  __shared__ float room[32];
  const i64 row = blockIdx.x;
  float values[packs][kFour];
  float all = 0.0f;
#pragma unroll
  for (int i = 0; i < packs; ++i) {
    const int column = column_of(i);
#pragma unroll
    for (int j = 0; j < kFour; ++j) values[i][j] = 0.0f;
    if (column >= width) continue;
    const i64 at = row * width + column;
    if (residual != nullptr) {
      const Pack<float, kFour> pack = load<float, kFour>(residual + at);
#pragma unroll
      for (int j = 0; j < kFour; ++j) values[i][j] = pack.at[j];
    }
    if (branch != nullptr) {
      const Pack<T, kFour> pack = load<T, kFour>(branch + at);
#pragma unroll
      for (int j = 0; j < kFour; ++j) values[i][j] += to_float(pack.at[j]);
    }
    if (sum != nullptr) {
      Pack<float, kFour> pack;
#pragma unroll
      for (int j = 0; j < kFour; ++j) pack.at[j] = values[i][j];
      store(sum + at, pack);
    }
#pragma unroll
    for (int j = 0; j < kFour; ++j) all += values[i][j];
  }
  const float mean = block_sum(all, room) / width;
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < packs; ++i) {
    if (column_of(i) >= width) continue;
#pragma unroll
    for (int j = 0; j < kFour; ++j) squares += (values[i][j] - mean) * (values[i][j] - mean);
  }
  const float inverse = rsqrtf(block_sum(squares, room) / width + epsilon);
  if (means != nullptr && threadIdx.x == 0) {
    means[row] = mean;
    inverses[row] = inverse;
  }
#pragma unroll
  for (int i = 0; i < packs; ++i) {
    const int column = column_of(i);
    if (column >= width) continue;
    const Pack<float, kFour> scale = load<float, kFour>(gamma + column), shift = load<float, kFour>(beta + column);
    Pack<float, kFour> result;
#pragma unroll
    for (int j = 0; j < kFour; ++j)
      result.at[j] = (values[i][j] - mean) * inverse * scale.at[j] + shift.at[j];
    const i64 at = row * width + column;
    if (wide != nullptr) store(wide + at, result);
    if (narrow == nullptr) continue;
    Pack<T, kFour> rounded_result;
#pragma unroll
    for (int j = 0; j < kFour; ++j) rounded_result.at[j] = rounded<T>(result.at[j]);
    store(narrow + at, rounded_result);
  }
}

/// The gradient by the sum, which is that by the residual and that by the branch, of those of the results,
/// each of which may be null. `values`: the sum. A row has `lanes` threads, and a block does several rows at a time.
/// `block_sums`: of the gradients by gamma and beta, and of the columns of that by the branch, which are the gradient
/// of a bias that was added to it, side by side; its parts are the blocks.
template <class T, int packs, bool sums_branch>
__global__ void __launch_bounds__(512, 1)
    add_norm_backward(const T* narrow, const float* wide, const float* sum, const float* values,
                      const float* gamma, const float* means, const float* inverses, float* by_residual,
                      T* by_branch, BlockSums block_sums, i64 rows, int width, int lanes) {
  __shared__ float room[64];
  __shared__ Pack<float, kFour> added[kSharedPacks];
  float by_gamma[packs][kFour] = {}, by_beta[packs][kFour] = {}, by_bias[packs][kFour] = {};
  const int rows_of_block = blockDim.x / lanes;
  for (i64 first = (i64)blockIdx.x * rows_of_block; first < rows; first += (i64)gridDim.x * rows_of_block) {
    const i64 row = first + threadIdx.x / lanes;
    // Others of the block may have one, and all threads come to their barriers.
    const int columns = row < rows ? width : 0;
    const float mean = row < rows ? means[row] : 0.0f, inverse = row < rows ? inverses[row] : 0.0f;
    float gradients[packs][kFour], normed[packs][kFour];
    Two sums = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      const int column = column_of_row(i, lanes);
      if (column >= columns) continue;
      const i64 at = row * width + column;
      const Pack<float, kFour> value = load<float, kFour>(values + at), scale = load<float, kFour>(gamma + column);
#pragma unroll
      for (int j = 0; j < kFour; ++j) gradients[i][j] = 0.0f;
      if (narrow != nullptr) {
        const Pack<T, kFour> pack = load<T, kFour>(narrow + at);
#pragma unroll
        for (int j = 0; j < kFour; ++j) gradients[i][j] = to_float(pack.at[j]);
      }
      if (wide != nullptr) {
        const Pack<float, kFour> pack = load<float, kFour>(wide + at);
#pragma unroll
        for (int j = 0; j < kFour; ++j) gradients[i][j] += pack.at[j];
      }
#pragma unroll
      for (int j = 0; j < kFour; ++j) {
        normed[i][j] = (value.at[j] - mean) * inverse;
        by_gamma[i][j] += gradients[i][j] * normed[i][j];
        by_beta[i][j] += gradients[i][j];
        gradients[i][j] *= scale.at[j];
        sums.a += gradients[i][j];
        sums.b += gradients[i][j] * normed[i][j];
      }
    }
    sums = row_sums(sums, lanes, room);
    const float mean_gradient = sums.a / width, mean_product = sums.b / width;
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      const int column = column_of_row(i, lanes);
      if (column >= columns) continue;
      const i64 at = row * width + column;
      Pack<float, kFour> result;
#pragma unroll
      for (int j = 0; j < kFour; ++j)
        result.at[j] = inverse * (gradients[i][j] - mean_gradient - normed[i][j] * mean_product);
      if (sum != nullptr) {
        const Pack<float, kFour> pack = load<float, kFour>(sum + at);
#pragma unroll
        for (int j = 0; j < kFour; ++j) result.at[j] += pack.at[j];
      }
      if (by_residual != nullptr) store(by_residual + at, result);
      if (sums_branch) {
#pragma unroll
        for (int j = 0; j < kFour; ++j) by_bias[i][j] += result.at[j];
      }
      if (by_branch == nullptr) continue;
      Pack<T, kFour> rounded_result;
#pragma unroll
      for (int j = 0; j < kFour; ++j) rounded_result.at[j] = rounded<T>(result.at[j]);
      store(by_branch + at, rounded_result);
    }
  }
  if (block_sums.partial == nullptr) return;
  constexpr int kSums = sums_branch ? 3 : 2;
  float* const mine = block_sums.partial + (i64)blockIdx.x * kSums * width;
  store_of_rows(by_gamma, mine, lanes, width, added);
  store_of_rows(by_beta, mine + width, lanes, width, added);
  if (sums_branch) store_of_rows(by_bias, mine + 2 * width, lanes, width, added);
  add_block_sums<kFour>(block_sums, 0, blockIdx.x, gridDim.x, kSums * width, 0, kSums * width);
}
