// The trainings that tests/golden/make_trainer.py runs with transformers' Trainer, compared with its recorded
// results.

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "lockstep/train/trainer.hpp"
#include "support/accelerators.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Names = std::vector<std::string>;

/// The golden was recorded on one CPU; others round float32 products in other ways, by up to 1.5e-6 after a
/// run.
constexpr double kTolerance = 3e-6;

/// The formulas of make_trainer.py.
class Samples final : public Dataset {
 public:
  Samples(std::int64_t begin, std::int64_t count, bool weighted)
      : begin_(begin), count_(count), weighted_(weighted) {}
  std::int64_t size() const override { return count_; }
  Example get(std::int64_t index, const SampleContext& /*context*/) const override {
    const std::int64_t i = index + begin_;
    std::vector<float> x;
    for (std::int64_t j = 0; j < 3; ++j)
      x.push_back(static_cast<float>(static_cast<double>((i * 7 + j * 3) % 11 - 5) / 5));
    const double y = static_cast<double>(i % 5 - 2) / 2;
    return {{"x", torch::tensor(x)},
            {"labels", torch::tensor(weighted_ && i % 3 == 0 ? -100.0 : y, at::kFloat)}};
  }

 private:
  std::int64_t begin_;
  std::int64_t count_;
  bool weighted_;
};

torch::nn::Linear initial_model() {
  torch::nn::Linear linear(3, 1);
  const torch::NoGradGuard no_grad;
  linear->weight.copy_(torch::tensor({{0.1, -0.2, 0.3}}));
  linear->bias.fill_(0.05);
  return linear;
}

Batch outputs_of(auto& model, const Batch& batch) {
  const at::Tensor prediction = model(batch["x"]).select(1, 0);
  return {{"loss", (prediction - batch["labels"]).square().mean()}, {"prediction", prediction}};
}

Loss weighted_loss(const Batch& outputs, const Batch& batch) {
  const at::Tensor counts = batch["labels"] != -100;
  const at::Tensor sum = ((outputs["prediction"] - batch["labels"]).square() * counts).sum();
  return {sum, counts.sum().item<double>()};
}

/// The negated distance of the mean prediction from the mean label.
class Bias final : public EvaluationMetrics {
 public:
  void reset() override { sums_ = at::zeros({3}, at::kDouble); }
  void update(const Batch& outputs, const Batch& batch) override {
    sums_ += at::stack({outputs["prediction"].sum(), batch["labels"].sum(), torch::tensor(batch.size())});
  }
  LogValues compute(const ProcessGroup& group) override {
    at::Tensor all = sums_.clone();
    group.all_reduce(all);
    return {{"bias", -std::abs(((all[0] - all[1]) / all[2]).item<double>())}};
  }

 private:
  at::Tensor sums_;
};

/// Records what make_trainer.py's callbacks record.
class Recorder final : public TrainerCallback {
 public:
  void on_init_end(CallbackContext&) override { events.emplace_back("on_init_end"); }
  void on_train_begin(CallbackContext&) override { events.emplace_back("on_train_begin"); }
  void on_train_end(CallbackContext&) override { events.emplace_back("on_train_end"); }
  void on_epoch_begin(CallbackContext&) override { events.emplace_back("on_epoch_begin"); }
  void on_epoch_end(CallbackContext&) override { events.emplace_back("on_epoch_end"); }
  void on_step_begin(CallbackContext&) override { events.emplace_back("on_step_begin"); }
  void on_pre_optimizer_step(CallbackContext& event) override {
    events.emplace_back("on_pre_optimizer_step");
    rates.push_back(event.trainer.optimizer()->param_groups().front().options().get_lr());
  }
  void on_optimizer_step(CallbackContext&) override { events.emplace_back("on_optimizer_step"); }
  void on_substep_end(CallbackContext&) override { events.emplace_back("on_substep_end"); }
  void on_step_end(CallbackContext&) override { events.emplace_back("on_step_end"); }
  void on_evaluate(CallbackContext&) override { events.emplace_back("on_evaluate"); }
  void on_predict(CallbackContext&) override { events.emplace_back("on_predict"); }
  void on_save(CallbackContext& event) override {
    events.emplace_back("on_save");
    folders.push_back(folders_of(event.args.output_dir));
  }
  void on_log(CallbackContext&) override { events.emplace_back("on_log"); }
  void on_prediction_step(CallbackContext&) override { events.emplace_back("on_prediction_step"); }

  static Names folders_of(const fs::path& folder) {
    std::vector<std::int64_t> steps;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("checkpoint-")) steps.push_back(std::stoll(name.substr(11)));
    }
    std::sort(steps.begin(), steps.end());
    Names names;
    for (const auto step : steps) names.push_back(checkpoint_name(step));
    return names;
  }

  Names events;
  std::vector<double> rates;
  std::vector<Names> folders;
};

/// Python's arguments as ours, without those that only the script has.
TrainingArguments arguments_of(const Json& golden, const Json& run, const fs::path& folder) {
  Json json = golden["common"];
  json.update(run["arguments"]);
  json.erase("early_stopping");
  json.erase("weighted");
  if (json.contains("lr_scheduler_kwargs")) json["lr_scheduler_kwargs"] = json["lr_scheduler_kwargs"].dump();
  TrainingArguments base;
  base.disable_tqdm = true;
  base.output_dir = folder;
  return training_argument_table().from_json(json, base);
}

TrainerComponents parts_of(const Json& golden, const Json& run, const std::shared_ptr<Recorder>& recorder) {
  const Json& arguments = run["arguments"];
  const bool weighted = arguments.value("weighted", false);
  const auto samples = golden["samples"].get<std::int64_t>();
  TrainerComponents parts{
      .model = wrap_model(initial_model(),
                          [](auto& model, const Batch& batch) { return outputs_of(model, batch); }),
      .train_dataset = std::make_shared<Samples>(0, samples, weighted),
      .eval_dataset =
          std::make_shared<Samples>(samples, golden["eval_samples"].get<std::int64_t>(), weighted)};
  if (weighted) parts.compute_loss = weighted_loss;
  if (run["case"] == "epochs") parts.compute_metrics = std::make_shared<Bias>();
  if (arguments.contains("early_stopping"))
    parts.callbacks.push_back(
        std::make_shared<EarlyStoppingCallback>(arguments["early_stopping"].get<std::int64_t>()));
  parts.callbacks.push_back(recorder);
  return parts;
}

void expect_near(const std::vector<double>& values, const std::vector<double>& expected, const char* what) {
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], kTolerance) << what << " " << i;
}

bool is_timing(const std::string& name) {
  return name.ends_with("_runtime") || name.ends_with("_per_second");
}

void expect_same_log(const std::vector<LogEntry>& log, const Json& expected) {
  ASSERT_EQ(log.size(), expected.size());
  for (std::size_t i = 0; i < log.size(); ++i) {
    SCOPED_TRACE("log entry " + std::to_string(i) + " should be " + expected[i].dump());
    EXPECT_EQ(log[i].step, expected[i]["step"].get<std::int64_t>());
    std::size_t count = 1;
    for (const auto& [name, value] : log[i].values) {
      if (is_timing(name)) continue;
      ++count;
      ASSERT_TRUE(expected[i].contains(name)) << name;
      EXPECT_NEAR(value, expected[i][name].get<double>(), kTolerance) << name;
    }
    EXPECT_EQ(count, expected[i].size());
  }
}

void expect_same_state(const TrainerState& state, const Json& expected) {
  EXPECT_EQ(state.global_step, expected["global_step"]);
  EXPECT_EQ(state.max_steps, expected["max_steps"]);
  EXPECT_EQ(state.num_train_epochs, expected["num_train_epochs"]);
  EXPECT_EQ(state.logging_steps, expected["logging_steps"]);
  EXPECT_EQ(state.eval_steps, expected["eval_steps"]);
  EXPECT_EQ(state.save_steps, expected["save_steps"]);
  EXPECT_NEAR(state.epoch, expected["epoch"], kTolerance);
  EXPECT_EQ(state.best_metric.has_value(), !expected["best_metric"].is_null());
  if (state.best_metric) {
    EXPECT_NEAR(*state.best_metric, expected["best_metric"].get<double>(), kTolerance);
  }
  const Json best_step = state.best_global_step ? Json(*state.best_global_step) : Json(nullptr);
  EXPECT_EQ(best_step, expected["best_global_step"]);
  const Json best = state.best_model_checkpoint
                        ? Json(fs::path(*state.best_model_checkpoint).filename().string())
                        : Json(nullptr);
  EXPECT_EQ(best, expected["best_model_checkpoint"]);
}

void check_rank_0(Trainer& trainer, const Recorder& recorder, const Json& run) {
  EXPECT_EQ(recorder.events, run["events"].get<Names>());
  expect_near(recorder.rates, run["rates"].get<std::vector<double>>(), "learning rate");
  EXPECT_EQ(recorder.folders, run["folders"].get<std::vector<Names>>());
  expect_same_log(trainer.state().log_history, run["log_history"]);
  expect_same_state(trainer.state(), run["state"]);
  std::vector<double> weights;
  for (const auto& entry : trainer.model().parameters()) {
    const at::Tensor values = entry.tensor.detach().to(at::kDouble).reshape({-1});
    for (std::int64_t i = 0; i < values.numel(); ++i) weights.push_back(values[i].item<double>());
  }
  expect_near(weights, run["weights"].get<std::vector<double>>(), "weight");
}

/// predict() for the evaluation's samples, which Python distributes evenly, so that its loss is exact too.
void check_prediction(Trainer& trainer, Recorder& recorder, const Json& golden, const Json& run) {
  recorder.events.clear();
  const bool weighted = run["arguments"].value("weighted", false);
  const PredictionOutput output = trainer.predict(std::make_shared<Samples>(
      golden["samples"].get<std::int64_t>(), golden["eval_samples"].get<std::int64_t>(), weighted));
  if (!trainer.accelerator().is_main_process()) return;
  const Json& expected = run["predict"];
  EXPECT_EQ(recorder.events, expected["events"].get<Names>());
  const at::Tensor predictions = output.predictions["prediction"].to(at::kDouble).contiguous();
  expect_near({predictions.data_ptr<double>(), predictions.data_ptr<double>() + predictions.numel()},
              expected["predictions"].get<std::vector<double>>(), "prediction");
  Json metrics = Json::object();
  for (const auto& [name, value] : output.metrics) {
    if (!is_timing(name)) metrics[name] = value;
  }
  ASSERT_EQ(metrics.size(), expected["metrics"].size()) << metrics;
  for (const auto& [name, value] : expected["metrics"].items())
    EXPECT_NEAR(metrics.value(name, NAN), value.get<double>(), kTolerance) << name;
}

/// With a limit of 1, Python keeps only the best checkpoint at the end, and could not resume training; here
/// the newest is kept too.
void check_last_folders(const TrainingArguments& args, const Json& run) {
  Names expected = run["final_folders"];
  const Names newest = run["folders"].empty() ? Names() : run["folders"].back().get<Names>();
  if (args.save_total_limit == 1 && expected.back() != newest.back()) expected.push_back(newest.back());
  EXPECT_EQ(Recorder::folders_of(args.output_dir), expected);
}

void check_run(const Json& golden, const Json& run) {
  const testing::TemporaryFolder folder;
  const TrainingArguments args = arguments_of(golden, run, folder / "out");
  testing::run_accelerators(
      run["world"].get<int>(),
      [&](const Accelerator& accelerator) {
        const auto recorder = std::make_shared<Recorder>();
        Trainer trainer(accelerator, args, parts_of(golden, run, recorder));
        trainer.train();
        if (accelerator.is_main_process()) {
          check_rank_0(trainer, *recorder, run);
          check_last_folders(args, run);
        }
        check_prediction(trainer, *recorder, golden, run);
      },
      accelerator_options(args));
}

TEST(TrainerGolden, DoesWhatTransformersTrainerDoes) {
  std::ifstream file(LOCKSTEP_TRAINER_GOLDEN);
  const Json golden = Json::parse(file);
  ASSERT_EQ(golden["runs"].size(), 10U);
  for (const Json& run : golden["runs"]) {
    SCOPED_TRACE("case " + run["case"].get<std::string>() + ", " + run["world"].dump() + " rank(s)");
    check_run(golden, run);
  }
}

}  // namespace
}  // namespace lockstep
