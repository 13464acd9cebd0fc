// Evaluations of data sets that show other samples in place of damaged ones.

#include <nlohmann/json.hpp>

#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

using testing::arguments;
using testing::samples;
using testing::small_model;
using testing::TemporaryFolder;

class DamagedSamples : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DamagedSamples, ::testing::Values(1, 2));

/// A data set that shows its first sample in place of some that it cannot read: a whole batch, and one of
/// another.
class Damaged final : public Dataset {
 public:
  explicit Damaged(std::shared_ptr<const Dataset> whole) : whole_(std::move(whole)) {}
  static bool is_damaged(std::int64_t index) { return (index >= 3 && index < 6) || index == 10; }

  std::int64_t size() const override { return whole_->size(); }
  Example get(std::int64_t index, const SampleContext& context) const override {
    Example example = whole_->get(is_damaged(index) ? 0 : index, context);
    example.valid = {!is_damaged(index)};
    return example;
  }

 private:
  std::shared_ptr<const Dataset> whole_;
};

/// The mean error of a row, and the number of rows, over all ranks.
class MeanDistance final : public EvaluationMetrics {
 public:
  void reset() override { sum_ = rows_ = 0; }
  void update(const Batch& outputs, const Batch& batch) override {
    sum_ += (outputs["prediction"] - batch["y"]).abs().sum().item<double>();
    rows_ += static_cast<double>(batch.size());
  }
  LogValues compute(const ProcessGroup& group) override {
    double sum = 0, rows = 0;
    for (const auto& part : group.all_gather_object(nlohmann::json{sum_, rows_})) {
      sum += part[0].get<double>();
      rows += part[1].get<double>();
    }
    return {{"distance", sum / rows}, {"rows", rows}};
  }

 private:
  double sum_ = 0, rows_ = 0;
};

TEST_P(DamagedSamples, CountNowhere) {
  const auto whole = samples(23);
  std::vector<std::int64_t> good;
  for (std::int64_t i = 0; i < whole->size(); ++i)
    if (!Damaged::is_damaged(i)) good.push_back(i);
  const auto rest = std::make_shared<Subset>(whole, good);
  for (const bool by_batches : {true, false}) {
    const TemporaryFolder folder;
    TrainingArguments args = arguments(folder);
    args.batch_eval_metrics = by_batches;
    testing::run_accelerators(
        GetParam(),
        [&](const Accelerator& accelerator) {
          Trainer trainer(accelerator, args,
                          {.model = small_model(), .compute_metrics = std::make_shared<MeanDistance>()});
          const LogEntry damaged{trainer.evaluate(std::make_shared<Damaged>(whole))};
          const LogEntry expected{trainer.evaluate(rest)};
          for (const char* name : {"eval_loss", "eval_distance", "eval_rows"})
            EXPECT_NEAR(damaged.find(name).value(), expected.find(name).value(), 1e-6) << name;
          EXPECT_EQ(trainer.predict(std::make_shared<Damaged>(whole)).predictions.indices, good);
        },
        accelerator_options(args));
  }
}

}  // namespace
}  // namespace lockstep
