#include "scores.hpp"

#include <memory>

#include "lockstep/models/entity_metrics.hpp"

namespace {

using lockstep::metrics::Entities;

class ScoresByType final : public lockstep::EvaluationMetrics {
 public:
  explicit ScoresByType(const std::vector<std::string>& tags) : empty_(tags), sums_(empty_) {}

  void reset() override { sums_ = empty_; }
  void update(const lockstep::Batch& outputs, const lockstep::Batch& batch) override {
    sums_.update(outputs["logits"], batch["labels"]);
  }
  lockstep::Metrics compute(const lockstep::ProcessGroup& group) override {
    const Entities all = sums_.of_all_ranks(group);
    std::vector<double> values = all.values();
    for (std::size_t type = 0; type < all.types().size(); ++type) {
      const auto scores = all.of_type(type);
      values.insert(values.end(),
                    {scores.precision, scores.recall, scores.f1, static_cast<double>(scores.number)});
    }
    const auto all_names = names();
    lockstep::Metrics result;
    for (std::size_t i = 0; i < all_names.size(); ++i) result.emplace_back(all_names[i], values[i]);
    return result;
  }
  std::vector<std::string> names() const override {
    auto all = Entities::names();
    for (const auto& type : empty_.types())
      for (const char* score : {"_precision", "_recall", "_f1", "_number"}) all.push_back(type + score);
    return all;
  }

 private:
  Entities empty_, sums_;
};

}  // namespace

lockstep::ComputeMetrics entity_scores(const std::vector<std::string>& tags, bool by_type) {
  if (!by_type) return {Entities(tags)};
  return {std::make_shared<ScoresByType>(tags)};
}
