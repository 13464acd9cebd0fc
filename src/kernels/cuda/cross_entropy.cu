// Cross entropy of rows of logits, whose gradient is written over them: one block a row, which reads it twice,
// the second time mostly from the cache.

/// The maximum of some values, and the sum of exp(value - maximum).
struct ExpSum {
  float maximum, sum;
};

__device__ __forceinline__ ExpSum joined(const ExpSum& a, const ExpSum& b) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  // Of nothing, and of values that are all -inf, the sum is 0 or NaN.
  const float of_a = a.maximum == maximum ? a.sum : a.sum * __expf(a.maximum - maximum);
  const float of_b = b.maximum == maximum ? b.sum : b.sum * __expf(b.maximum - maximum);
  return {maximum, of_a + of_b};
}

/// A value and its place: of equal ones the first counts, and NaN above all, as in LibTorch.
struct Candidate {
  float value;
  int at;
};

__device__ __forceinline__ Candidate better(const Candidate& a, const Candidate& b) {
  const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
  if (a_is_nan != b_is_nan) return a_is_nan ? a : b;
  if (a_is_nan || a.value == b.value) return a.at < b.at ? a : b;
  return a.value > b.value ? a : b;
}

/// The end of a row's block: the last block adds the losses of all rows, and counts the labels.
__device__ __forceinline__ void add_losses(const LossTotals& totals, const float* losses, const i64* labels,
                                           i64 no_label, float* room, int* counts) {
  if (totals.counter == nullptr || !comes_last<true>(totals.counter, gridDim.x)) return;
  float sum = 0.0f;
  int count = 0;
  for (i64 row = threadIdx.x; row < gridDim.x; row += blockDim.x) {
    float loss[1];
    load_shared(losses + row, loss);
    sum += loss[0];
    count += labels[row] != no_label;
  }
  sum = block_sum(sum, room);
  for (int offset = 16; offset > 0; offset /= 2) count += __shfl_xor_sync(kWholeWarp, count, offset);
  if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = count;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int warp = 1; warp < (int)blockDim.x / 32; ++warp) count += counts[warp];
  *totals.sum = sum;
  *totals.labels = count;
}

/// `logits`: rows of `stride` elements, each at a multiple of 16 bytes, of which the first `words` are logits.
/// The others become 0. `losses`: of each row, 0 where the label is `no_label`. `predictions`: the place of
/// the greatest logit, if not null. With `writes_gradients`, the gradient of the sum of the losses by the
/// logits, times *`factor` if that is not null, replaces them. `smoothing`: the share of a label that is
/// spread over all words. `totals`: of all rows.
template <class T, bool writes_gradients>
__global__ void __launch_bounds__(512) cross_entropy(T* logits, const i64* labels, float* losses,
                                                     i64* predictions, const float* factor, int words,
                                                     i64 stride, i64 no_label, float smoothing,
                                                     LossTotals totals) {
  constexpr int n = kPack<T>;
  __shared__ float room[32];
  __shared__ int counts_of_warps[32];
  __shared__ ExpSum sums[32];
  __shared__ Candidate candidates[32];
  const i64 row = blockIdx.x;
  T* const values = logits + row * stride;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const i64 label = labels[row];
  const bool counts = label != no_label;
  require(!counts || (label >= 0 && label < words), "a label is at least 0 and below the number of classes");
  if (!counts && predictions == nullptr) {
    if (threadIdx.x == 0) losses[row] = 0.0f;
    if (writes_gradients) {
      Pack<T, n> zeros;
#pragma unroll
      for (int i = 0; i < n; ++i) zeros.at[i] = rounded<T>(0.0f);
      for (i64 at = threadIdx.x * n; at < stride; at += blockDim.x * n) store(values + at, zeros);
    }
    add_losses(totals, losses, labels, no_label, room, counts_of_warps);
    return;
  }
  // Before any thread writes.
  const float labelled = counts ? to_float(values[label]) : 0.0f;

  const float none = -__int_as_float(0x7f800000);
  ExpSum mine = {none, 0.0f};
  Candidate best = {none, words};
  float plain = 0.0f;
  for (int at = threadIdx.x * n; at < words; at += blockDim.x * n) {
    const Pack<T, n> pack = load(values + at);
    float some[n];
    float maximum = mine.maximum;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      some[i] = at + i < words ? to_float(pack.at[i]) : none;
      maximum = fmaxf(maximum, some[i]);
    }
    if (maximum != mine.maximum) {
      mine.sum *= __expf(mine.maximum - maximum);
      mine.maximum = maximum;
    }
#pragma unroll
    for (int i = 0; i < n; ++i) {
      if (at + i >= words) continue;
      mine.sum += some[i] == none ? 0.0f : __expf(some[i] - maximum);
      plain += some[i];
      if (predictions != nullptr) best = better(best, {some[i], at + i});
    }
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    const ExpSum other = {__shfl_xor_sync(kWholeWarp, mine.maximum, offset),
                          __shfl_xor_sync(kWholeWarp, mine.sum, offset)};
    mine = joined(mine, other);
    if (predictions == nullptr) continue;
    const Candidate candidate = {__shfl_xor_sync(kWholeWarp, best.value, offset),
                         __shfl_xor_sync(kWholeWarp, best.at, offset)};
    best = better(best, candidate);
  }
  if (lane == 0) {
    sums[warp] = mine;
    candidates[warp] = best;
  }
  __syncthreads();
  mine = sums[0];
  for (int i = 1; i < warps; ++i) mine = joined(mine, sums[i]);
  const float log_sum = logf(mine.sum);
  const float all = smoothing > 0.0f ? block_sum(plain, room) : 0.0f;
  if (threadIdx.x == 0) {
    // The differences first: the logarithm is small beside a large maximum.
    const float spread = smoothing > 0.0f ? smoothing * (mine.maximum - all / words + log_sum) : 0.0f;
    losses[row] = counts ? (1.0f - smoothing) * (mine.maximum - labelled + log_sum) + spread : 0.0f;
    if (predictions != nullptr) {
      for (int i = 1; i < warps; ++i) best = better(best, candidates[i]);
      predictions[row] = best.at;
    }
  }
  if (!writes_gradients) return add_losses(totals, losses, labels, no_label, room, counts_of_warps);
  const float scale = counts ? (factor != nullptr ? *factor : 1.0f) : 0.0f;
  const float each = smoothing / words, inverse = 1.0f / mine.sum;
  for (i64 at = threadIdx.x * n; at < stride; at += blockDim.x * n) {
    Pack<T, n> pack = load(values + at);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const bool is_word = at + i < words;
      float gradient = __expf(to_float(pack.at[i]) - mine.maximum) * inverse - each;
      if (at + i == label) gradient -= 1.0f - smoothing;
      pack.at[i] = rounded<T>(is_word && counts ? gradient * scale : 0.0f);
    }
    store(values + at, pack);
  }
  add_losses(totals, losses, labels, no_label, room, counts_of_warps);
}
