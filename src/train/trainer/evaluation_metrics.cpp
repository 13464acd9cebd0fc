#include "lockstep/train/evaluation_metrics.hpp"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

/// A function of all samples, called once on rank 0 with all of them.
class FunctionMetrics final : public EvaluationMetrics {
 public:
  explicit FunctionMetrics(std::function<Metrics(const EvaluationPrediction&)> function)
      : function_(std::move(function)) {}

  void reset() override {
    values_.clear();
    error_ = nullptr;
  }
  /// compute() passes an exception to the other ranks.
  void update(const Batch& outputs, const Batch& batch) override {
    failure_ = "an exception of an unknown type";
    try {
      values_ = function_({outputs, batch});
    } catch (const std::exception& error) {
      failure_ = error.what();
      error_ = std::current_exception();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  /// Values are sent as bits, because JSON has no NaN.
  Metrics compute(const ProcessGroup& group) override {
    nlohmann::json all{{"values", nlohmann::json::array()}};
    for (const auto& [name, value] : values_)
      all["values"].push_back({name, std::bit_cast<std::uint64_t>(value)});
    if (error_) all["error"] = failure_;
    all = group.broadcast_object(all);
    if (error_) std::rethrow_exception(error_);
    if (all.contains("error"))
      throw RemoteError("rank 0 failed in compute_metrics: " + all["error"].get<std::string>(), 0);
    Metrics values;
    for (const auto& entry : all["values"])
      values.emplace_back(entry[0], std::bit_cast<double>(entry[1].get<std::uint64_t>()));
    return values;
  }
  bool needs_all_samples() const override { return true; }

 private:
  std::function<Metrics(const EvaluationPrediction&)> function_;
  Metrics values_;
  std::exception_ptr error_;
  std::string failure_;
};

/// Several metrics, one after the other.
class SeveralMetrics final : public EvaluationMetrics {
 public:
  explicit SeveralMetrics(std::vector<ComputeMetrics> all) : all_(std::move(all)) {
    std::set<std::string> seen;
    for (const auto& one : all_) {
      if (!one) throw UsageError("compute_metrics: one of several metrics is null");
      for (const auto& name : one->names()) {
        if (!seen.insert(name).second)
          throw UsageError("compute_metrics: two metrics have the name '" + name + "': give one a prefix");
      }
    }
  }

  void reset() override {
    for (const auto& one : all_) one->reset();
  }
  void update(const Batch& outputs, const Batch& batch) override {
    for (const auto& one : all_) one->update(outputs, batch);
  }
  Metrics compute(const ProcessGroup& group) override {
    Metrics values;
    for (const auto& one : all_) {
      for (auto& value : one->compute(group)) values.push_back(std::move(value));
    }
    return values;
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& one : all_) {
      const auto own = one->names();
      if (own.empty()) return {};
      names.insert(names.end(), own.begin(), own.end());
    }
    return names;
  }
  bool needs_all_samples() const override {
    return std::any_of(all_.begin(), all_.end(), [](const auto& one) { return one->needs_all_samples(); });
  }

 private:
  std::vector<ComputeMetrics> all_;
};

}  // namespace

std::shared_ptr<EvaluationMetrics> ComputeMetrics::of_function(
    std::function<Metrics(const EvaluationPrediction&)> function) {
  return std::make_shared<FunctionMetrics>(std::move(function));
}

ComputeMetrics::ComputeMetrics(const std::vector<ComputeMetrics>& several)
    : metrics_(std::make_shared<SeveralMetrics>(several)) {}

}  // namespace lockstep
