#include "scores.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "samples.hpp"

namespace {

using lockstep::Batch;
using lockstep::Metrics;

constexpr std::int64_t kFound = 10;
constexpr std::int64_t kAccuracyAt[] = {1, 3, 5, 10};
/// Queries whose similarities to all documents are in memory at a time.
constexpr std::int64_t kQueriesAtATime = 256;

std::string similarity_name(bool cosine) { return cosine ? "cosine" : "dot"; }

at::Tensor vectors(const at::Tensor& rows, bool cosine) {
  const at::Tensor wide = rows.to(at::kFloat);
  return cosine ? wide / wide.norm(2, {1}, /*keepdim=*/true).clamp_min(1e-12) : wide;
}

std::vector<std::int64_t> numbers_in(const at::Tensor& numbers) {
  const at::Tensor flat = numbers.to(at::kLong).contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

/// Different texts: the row of each, and their places in it by number.
struct Distinct {
  std::vector<std::int64_t> rows;
  std::map<std::int64_t, std::int64_t> places;
};

Distinct distinct(const std::vector<std::int64_t>& numbers) {
  Distinct texts;
  for (std::size_t row = 0; row < numbers.size(); ++row) {
    const auto place = static_cast<std::int64_t>(texts.rows.size());
    if (texts.places.emplace(numbers[row], place).second)
      texts.rows.push_back(static_cast<std::int64_t>(row));
  }
  return texts;
}

double discount(std::int64_t place) { return 1 / std::log2(static_cast<double>(place) + 2); }

/// The sums over queries.
struct Sums {
  std::vector<double> accuracy = std::vector<double>(std::size(kAccuracyAt));
  double reciprocal = 0, ndcg = 0;

  /// `found`: places of documents, the most similar first.
  void add(const std::vector<std::int64_t>& found, const std::set<std::int64_t>& own) {
    std::int64_t first = kFound;
    double gain = 0, ideal = 0;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(found.size()); ++i) {
      if (!own.contains(found[static_cast<std::size_t>(i)])) continue;
      first = std::min(first, i);
      gain += discount(i);
    }
    for (std::int64_t i = 0; i < std::min<std::int64_t>(kFound, std::ssize(own)); ++i) ideal += discount(i);
    for (std::size_t i = 0; i < accuracy.size(); ++i) accuracy[i] += first < kAccuracyAt[i] ? 1 : 0;
    if (first < kFound) reciprocal += 1 / static_cast<double>(first + 1);
    ndcg += gain / ideal;
  }
};

double pearson(const at::Tensor& one, const at::Tensor& other) {
  const at::Tensor a = one - one.mean(), b = other - other.mean();
  return ((a * b).sum() / (a.square().sum() * b.square().sum()).sqrt()).item<double>();
}

/// The place of each value in their order, that of equal ones being the mean of theirs.
at::Tensor ranks_of(const at::Tensor& values) {
  const auto [distinct, group, counts] = at::_unique2(values, /*sorted=*/true, /*return_inverse=*/true,
                                                      /*return_counts=*/true);
  const at::Tensor sizes = counts.to(at::kDouble);
  return (sizes.cumsum(0) - (sizes - 1) / 2).index_select(0, group);
}

class EmbeddingMetrics final : public lockstep::EvaluationMetrics {
 public:
  explicit EmbeddingMetrics(const ScoreOptions& options) : options_(options) {}

  void reset() override { metrics_.clear(); }
  bool needs_all_samples() const override { return true; }

  void update(const Batch& outputs, const Batch& batch) override {
    const auto& first = outputs[vectors_output(0)];
    const auto& second = outputs[vectors_output(1)];
    if (options_.has_scores) {
      metrics_ = similarity_metrics(first, second, batch[kScoreColumn], options_.cosine);
      return;
    }
    metrics_ = search_metrics({first, second, batch[kQueryColumn], batch[kDocumentColumn]}, options_.cosine);
    if (!options_.has_negatives) return;
    const auto query = vectors(first, options_.cosine);
    const auto to = [&](const at::Tensor& text) { return (query * vectors(text, options_.cosine)).sum(1); };
    const at::Tensor closer = to(second).gt(to(outputs[vectors_output(2)]));
    metrics_.emplace_back(similarity_name(options_.cosine) + "_accuracy",
                          closer.to(at::kDouble).mean().item<double>());
  }

  Metrics compute(const lockstep::ProcessGroup& group) override {
    const auto known = names();
    at::Tensor values = at::zeros({static_cast<std::int64_t>(known.size())}, at::kDouble);
    for (std::size_t i = 0; i < metrics_.size(); ++i)
      values[static_cast<std::int64_t>(i)] = metrics_[i].second;
    values = values.to(group.device());
    if (group.size() > 1) group.broadcast(values, 0);
    values = values.to(at::kCPU);
    Metrics all;
    for (std::size_t i = 0; i < known.size(); ++i)
      all.emplace_back(known[i], values[static_cast<std::int64_t>(i)].item<double>());
    return all;
  }

  std::vector<std::string> names() const override {
    const auto similarity = similarity_name(options_.cosine);
    if (options_.has_scores) return {"pearson_" + similarity, "spearman_" + similarity};
    std::vector<std::string> names;
    for (const auto k : kAccuracyAt) names.push_back(fmt::format("{}_accuracy@{}", similarity, k));
    for (const char* name : {"mrr", "ndcg"})
      names.push_back(fmt::format("{}_{}@{}", similarity, name, kFound));
    if (options_.has_negatives) names.push_back(similarity + "_accuracy");
    return names;
  }

 private:
  ScoreOptions options_;
  Metrics metrics_;
};

}  // namespace

std::string vectors_output(std::size_t text) { return fmt::format("vectors{}", text); }

Metrics search_metrics(const Search& search, bool cosine) {
  const auto query_numbers = numbers_in(search.query_numbers);
  const auto document_numbers = numbers_in(search.document_numbers);
  const auto queries = distinct(query_numbers), documents = distinct(document_numbers);
  std::vector<std::set<std::int64_t>> own(queries.rows.size());
  for (std::size_t row = 0; row < query_numbers.size(); ++row)
    own[static_cast<std::size_t>(queries.places.at(query_numbers[row]))].insert(
        documents.places.at(document_numbers[row]));
  const auto rows_of = [&](const at::Tensor& all, const std::vector<std::int64_t>& rows) {
    return vectors(all.index_select(0, at::tensor(rows, at::kLong)), cosine);
  };
  const at::Tensor wanted = rows_of(search.queries, queries.rows);
  const at::Tensor given = rows_of(search.documents, documents.rows).t();
  Sums sums;
  for (std::int64_t first = 0; first < wanted.size(0); first += kQueriesAtATime) {
    const at::Tensor part =
        wanted.slice(0, first, std::min(first + kQueriesAtATime, wanted.size(0))).matmul(given);
    const at::Tensor found = std::get<1>(part.topk(std::min(kFound, part.size(1)), 1));
    for (std::int64_t i = 0; i < found.size(0); ++i)
      sums.add(numbers_in(found[i]), own[static_cast<std::size_t>(first + i)]);
  }
  const auto count = static_cast<double>(own.size());
  const auto similarity = similarity_name(cosine);
  Metrics metrics;
  for (std::size_t i = 0; i < sums.accuracy.size(); ++i)
    metrics.emplace_back(fmt::format("{}_accuracy@{}", similarity, kAccuracyAt[i]), sums.accuracy[i] / count);
  metrics.emplace_back(fmt::format("{}_mrr@{}", similarity, kFound), sums.reciprocal / count);
  metrics.emplace_back(fmt::format("{}_ndcg@{}", similarity, kFound), sums.ndcg / count);
  return metrics;
}

Metrics similarity_metrics(const at::Tensor& one, const at::Tensor& other, const at::Tensor& scores,
                           bool cosine) {
  const at::Tensor similar = (vectors(one, cosine) * vectors(other, cosine)).sum(1).to(at::kDouble);
  const at::Tensor wanted = scores.to(at::kDouble);
  const auto similarity = similarity_name(cosine);
  return {{"pearson_" + similarity, pearson(similar, wanted)},
          {"spearman_" + similarity, pearson(ranks_of(similar), ranks_of(wanted))}};
}

lockstep::ComputeMetrics embedding_metrics(const ScoreOptions& options) {
  return std::make_shared<EmbeddingMetrics>(options);
}
