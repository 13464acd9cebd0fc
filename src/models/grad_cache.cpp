#include "lockstep/models/grad_cache.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "lockstep/core/error.hpp"
#include "parallel/generator_states.hpp"

namespace lockstep::models {
namespace {

/// Rows of one of the batches, and the random generators before they were encoded for the first time.
struct CachedChunk {
  std::size_t batch;
  std::int64_t first;
  Batch rows;
  parallel::GeneratorStates generators;
};

Batch rows_of(const Batch& batch, std::int64_t first, std::int64_t count) {
  Batch rows;
  for (const auto& [name, tensor] : batch.items()) {
    if (tensor.dim() == 0 || tensor.size(0) != batch.size()) {
      throw UsageError(
          fmt::format("GradCache: '{}' has the shape {}, but the batch has {} rows: each tensor needs them",
                      name, c10::str(tensor.sizes()), batch.size()));
    }
    rows.insert(name, tensor.narrow(0, first, count));
  }
  return rows;
}

}  // namespace

GradCache::GradCache(GradCacheOptions options) : options_(std::move(options)) {
  if (options_.chunk_rows < 1)
    throw UsageError(fmt::format("GradCache: chunk_rows is {}, expected at least 1", options_.chunk_rows));
  if (!options_.backward) options_.backward = [](const at::Tensor& scalar) { scalar.backward(); };
}

// The chain rule, cut at the embeddings. Of loss(e(x)) the gradient of a parameter is the sum over the rows
// of (d loss / d e_i) (d e_i / d p). The first factor needs all embeddings, but no graph of the encoder; the
// second one the graph of one row alone. So: (1) encode all chunks without a graph, and keep the embeddings,
// which are small; (2) let the loss compute d loss / d e, with a graph of the loss alone, which may gather
// other ranks' rows; (3) encode each chunk again with a graph, and run backward from sum_i e_i . (d loss / d
// e_i), in which the second factor is a constant. Dropout must be the same in (1) and (3), or (2) would
// belong to other embeddings: the generators of (1) are restored for (3), and put back afterwards, so that a
// step draws as many random numbers as one without a cache. Cost: one more forward.
at::Tensor GradCache::backward(const std::vector<Batch>& batches, const Encode& encode,
                               const LossOf& loss) const {
  std::vector<CachedChunk> chunks;
  std::vector<at::Tensor> embeddings;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const std::int64_t count = batches[i].size();
    if (count == 0) throw UsageError("GradCache: a batch has no rows");
    std::vector<at::Tensor> parts;
    for (std::int64_t first = 0; first < count; first += options_.chunk_rows) {
      Batch rows = rows_of(batches[i], first, std::min(options_.chunk_rows, count - first));
      chunks.push_back({i, first, rows, {}});
      const at::NoGradGuard no_grad;
      parts.push_back(encode(rows));
    }
    embeddings.push_back(at::cat(parts).detach().requires_grad_(true));
  }
  const at::Tensor value = loss(embeddings);
  value.backward();
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const auto& [batch, first, rows, generators] = chunks[i];
    const at::Tensor& gradient = embeddings[batch].grad();
    const std::shared_ptr<void> guard =
        options_.around_chunk ? options_.around_chunk(i + 1 == chunks.size()) : nullptr;
    const parallel::GeneratorScope scope(generators);
    const at::Tensor again = encode(rows);
    const at::Tensor own =
        gradient.defined() ? gradient.narrow(0, first, again.size(0)) : at::zeros_like(again);
    options_.backward((again * own).sum());
  }
  return value.detach();
}

}  // namespace lockstep::models
