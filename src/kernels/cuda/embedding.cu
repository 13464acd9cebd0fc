// The embeddings of tokens: of words, of their places in the text, and of types. Tables are in T, which is float.

constexpr int kEmbeddingPack = 4;
constexpr int kEmbeddingThreads = 128;

/// Row `ids[i]` of `words` [count, width], that of its type (0 without `type_ids`) of `types` [type_count, width], if
/// that is not null, and row i % `tokens` of `places` [>= tokens, width], added in this order: a block does a token.
/// The width is a multiple of 4.
template <class T>
__global__ void __launch_bounds__(kEmbeddingThreads)
    embed_tokens(const i64* ids, const i64* type_ids, const T* words, const T* types, const T* places,
                 T* results, i64 count, i64 type_count, i64 tokens, int width) {
  const i64 token = blockIdx.x, id = ids[token], type = type_ids != nullptr ? type_ids[token] : 0;
  require(id >= 0 && id < count, "a token is at least 0 and below the number of words");
  require(types == nullptr || (type >= 0 && type < type_count), "a type is at least 0 and below their number");
  const T *const word = words + id * width, *const place = places + token % tokens * width;
  for (int at = threadIdx.x * kEmbeddingPack; at < width; at += blockDim.x * kEmbeddingPack) {
    Pack<T, kEmbeddingPack> sum = load<T, kEmbeddingPack>(word + at);
    if (types != nullptr) {
      const Pack<T, kEmbeddingPack> added = load<T, kEmbeddingPack>(types + type * width + at);
#pragma unroll
      for (int i = 0; i < kEmbeddingPack; ++i) sum.at[i] += added.at[i];
    }
    const Pack<T, kEmbeddingPack> added = load<T, kEmbeddingPack>(place + at);
#pragma unroll
    for (int i = 0; i < kEmbeddingPack; ++i) sum.at[i] += added.at[i];
    store(results + token * width + at, sum);
  }
}

/// Adds a row to the sums of this thread's columns.
template <class T>
__device__ __forceinline__ void add_row(Pack<T, kEmbeddingPack>& sum, const T* row) {
  const Pack<T, kEmbeddingPack> one = load<T, kEmbeddingPack>(row);
#pragma unroll
  for (int i = 0; i < kEmbeddingPack; ++i) sum.at[i] += one.at[i];
}

/// Of word_gradients: four columns of each are those of most models.
constexpr int kWordThreads = 256;

/// The gradient by the words that occur, of `gradients` [count, width], into rows of `results`, whose others are 0: a
/// block does a token, if it is the first one of its word, and adds those of the same word in their order. `padding`
/// has no gradient.
template <class T>
__global__ void __launch_bounds__(kWordThreads)
    word_gradients(const i64* ids, const T* gradients, T* results, i64 count, i64 padding, int width) {
  __shared__ float room[32];
  __shared__ bool is_same[kWordThreads];
  const i64 token = blockIdx.x, id = ids[token];
  if (id == padding) return;
  bool is_before = false;
  for (i64 i = threadIdx.x; i < token; i += blockDim.x) is_before = is_before || ids[i] == id;
  if (block_sum(is_before ? 1.0f : 0.0f, room) > 0.0f) return;
  for (int begin = 0; begin < width; begin += kWordThreads * kEmbeddingPack) {
    const int at = begin + threadIdx.x * kEmbeddingPack;
    Pack<T, kEmbeddingPack> sum = {};
    for (i64 first = token; first < count; first += kWordThreads) {
      __syncthreads();
      is_same[threadIdx.x] = first + threadIdx.x < count && ids[first + threadIdx.x] == id;
      __syncthreads();
      for (int i = 0; i < kWordThreads; ++i) {
        if (is_same[i] && at < width) add_row(sum, gradients + (first + i) * width + at);
      }
    }
    if (at < width) store(results + id * width + at, sum);
  }
}

/// The gradient by all places, one a block: of `gradients` [texts, tokens, width], in the order of the texts. Places
/// that no text has get 0.
template <class T>
__global__ void __launch_bounds__(kEmbeddingThreads)
    place_gradients(const T* gradients, T* results, i64 texts, i64 tokens, int width) {
  const i64 place = blockIdx.x;
  for (int at = threadIdx.x * kEmbeddingPack; at < width; at += blockDim.x * kEmbeddingPack) {
    Pack<T, kEmbeddingPack> sum = {};
    if (place < tokens) {
#pragma unroll 4
      for (i64 text = 0; text < texts; ++text) add_row(sum, gradients + (text * tokens + place) * width + at);
    }
    store(results + place * width + at, sum);
  }
}

/// Rows that a block of type_gradients adds side by side: of its warps.
constexpr int kTypeWarps = 8;

/// The gradient by each type, of `gradients` [rows, width]: a block does some rows of 128 columns of one type, the
/// blocks of whose columns follow each other. The parts of `sums`, [types, width], are gridDim.y.
template <class T>
__global__ void __launch_bounds__(32 * kTypeWarps, 4)
    type_gradients(const i64* type_ids, const T* gradients, BlockSums sums, i64 rows, int width, int types) {
  constexpr int kColumns = 32 * kEmbeddingPack;
  __shared__ Pack<T, kEmbeddingPack> room[kTypeWarps][32];
  const int tiles = (width + kColumns - 1) / kColumns, type = blockIdx.x / tiles,
            begin = blockIdx.x % tiles * kColumns, lane = threadIdx.x % 32, warp = threadIdx.x / 32,
            at = begin + lane * kEmbeddingPack;
  const i64 each = (rows + gridDim.y - 1) / gridDim.y, first = blockIdx.y * each;
  const i64 end = first + each < rows ? first + each : rows;
  Pack<T, kEmbeddingPack> sum = {};
  for (i64 row = first + warp; row < end; row += kTypeWarps) {
    const i64 own = type_ids != nullptr ? type_ids[row] : 0;
    if (own == type && at < width) add_row(sum, gradients + row * width + at);
  }
  room[warp][lane] = sum;
  __syncthreads();
  float* const mine = sums.partial + ((i64)blockIdx.y * types + type) * width;
  if (warp == 0 && at < width) {
    for (int i = 1; i < kTypeWarps; ++i) {
#pragma unroll
      for (int j = 0; j < kEmbeddingPack; ++j) sum.at[j] += room[i][lane].at[j];
    }
    store(mine + at, sum);
  }
  const int last = begin + kColumns < width ? begin + kColumns : width;
  add_block_sums<kEmbeddingPack>(sums, blockIdx.x, blockIdx.y, gridDim.y, types * width, type * width + begin,
                                 type * width + last);
}
