#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/train/trainer_callback.hpp"
#include "lockstep/train/training_arguments.hpp"
#include "rules/schedule_kwargs.hpp"
#include "rules/training_plan.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::TemporaryFolder;
using testing::write_bytes;
using train::make_training_plan;

constexpr DurationScale kScale{.steps_per_epoch = 40, .samples_per_step = 16, .training_steps = 120};

TEST(Duration, CountsInEveryUnit) {
  EXPECT_EQ(Duration("500").steps(kScale), 500);
  EXPECT_EQ(Duration("500ba").steps(kScale), 500);
  EXPECT_EQ(Duration("1.5ep").steps(kScale), 60);
  EXPECT_EQ(Duration("100sp").steps(kScale), 7);
  EXPECT_EQ(Duration("0.1dur").steps(kScale), 12);
  EXPECT_EQ(Duration(0.26).steps(kScale), 32) << "a share, rounded up as transformers does";
  EXPECT_EQ(Duration(0.3).steps({.steps_per_epoch = 0, .samples_per_step = 0, .training_steps = 10}), 3);
  EXPECT_TRUE(Duration("3600sec").is_time());
}

/// As Python's sys.maxsize, which is no double, and what is too large for an integer.
TEST(Duration, KeepsWhatMeansNeverLarge) {
  for (const char* text : {"9223372036854775807", "1e20", "1e300ep", "1e300sp"})
    EXPECT_GT(Duration(text).steps(kScale), std::int64_t{1} << 61) << text;
}

TEST(Duration, ReadsBackWhatItWrites) {
  for (const char* text : {"0", "500", "3ep", "0.5ep", "100000sp", "0.25dur", "3600sec"})
    EXPECT_EQ(Duration(text).text(), text);
  EXPECT_EQ(Duration("500ba").text(), "500");
  EXPECT_EQ(Duration(0.1).text(), "0.1dur");
}

TEST(Duration, RefusesWhatIsNone) {
  for (const char* text : {"", "ep", "3 ep", "3epochs", "-1", "nan", "1.5", "2dur", "1e400"})
    EXPECT_THROW(Duration{text}, UsageError) << text;
  EXPECT_THROWS(Duration("10sec").steps(kScale), UsageError, "10sec", "a number of steps is needed");
  EXPECT_THROWS(Duration("3ep").steps({}), UsageError, "3ep", "the length of an epoch is not known");
}

TEST(TrainingArguments, ReadsFlagsAndAFile) {
  const TemporaryFolder folder;
  write_bytes(folder / "run.json",
              R"({"learning_rate": 0.1, "save_steps": 0.25, "warmup_steps": "2ep", "report_to": ["csv"]})");
  const auto parsed = training_argument_table().parse(
      {"--learning-rate", "0.2", "--config", folder / "run.json", "--eval-steps=50", "--no-stop-at-sigterm"});
  EXPECT_EQ(parsed.options.learning_rate, 0.2) << "the command line beats the file";
  EXPECT_EQ(parsed.options.save_steps, Duration(0.25));
  EXPECT_EQ(parsed.options.warmup_steps, Duration("2ep"));
  EXPECT_EQ(parsed.options.eval_steps, Duration(50));
  EXPECT_EQ(parsed.options.report_to, std::vector<std::string>{"csv"});
  EXPECT_FALSE(parsed.options.stop_at_sigterm);
}

TEST(TrainingArguments, NamesTheFileOfABadKey) {
  const TemporaryFolder folder;
  write_bytes(folder / "run.json", R"({"learning_rat": 0.1})");
  const std::vector<std::string> words{"--config", folder / "run.json"};
  EXPECT_THROWS(training_argument_table().parse(words), UsageError, "run.json", "learning_rat",
                "learning_rate");
  EXPECT_THROWS(training_argument_table().parse({"--config", folder / "none.json"}), UsageError, "none.json",
                "cannot be read");
}

struct OwnOptions : TrainingArguments {
  std::string corpus;
};

TEST(TrainingArguments, CombineWithAProgramsOwnOptions) {
  const auto table = OptionTable<OwnOptions>("mine", "Trains.")
                         .include(training_argument_table())
                         .section("data")
                         .add("corpus", &OwnOptions::corpus, "The texts.");
  const auto parsed = table.parse({"--corpus", "a.txt", "--max-steps", "7"});
  EXPECT_EQ(parsed.options.corpus, "a.txt");
  EXPECT_EQ(parsed.options.max_steps, 7);
  EXPECT_EQ(table.from_json_text(table.to_json_text(parsed.options)).max_steps, 7);
}

/// A change of the arguments, and a part of the resulting error.
struct Contradiction {
  std::function<void(TrainingArguments&)> change;
  const char* text;
};

const std::vector<Contradiction>& contradictions() {
  using A = TrainingArguments;
  static const std::vector<Contradiction> all{
      {[](A& a) { a.bf16 = a.fp16 = true; }, "bf16 and fp16"},
      {[](A& a) { a.bf16_full_eval = a.fp16_full_eval = true; }, "bf16_full_eval and fp16_full_eval"},
      {[](A& a) { a.max_steps = 0; }, "max_steps is 0"},
      {[](A& a) { a.max_steps = 5, a.max_duration = "3ep"; }, "max_duration and max_steps"},
      {[](A& a) { a.max_duration = 0.5; }, "a share (dur) has no total to refer to"},
      {[](A& a) { a.max_duration = "60sec"; }, "learning rate"},
      {[](A& a) { a.global_batch_size = 64, a.gradient_accumulation_steps = 2; }, "global_batch_size"},
      {[](A& a) { a.lr_scheduler_kwargs = "[1]"; }, "JSON object"},
      {[](A& a) { a.lr_scheduler_kwargs = R"({"num_cycles": 2})"; },
       "'num_cycles', but the schedule linear takes nothing"},
      {[](A& a) { a.lr_scheduler_type = "polynomial", a.lr_scheduler_kwargs = R"({"end_lr_rate": 0.1})"; },
       "'end_lr_rate', but the schedule polynomial takes lr_end, power"},
      {[](A& a) { a.lr_scheduler_type = "polynomial", a.lr_scheduler_kwargs = R"({"lr_end": "x"})"; },
       "lr_end"},
      {[](A& a) { a.lr_scheduler_type = "polynomial", a.lr_scheduler_kwargs = R"({"lr_end": 0.1})"; },
       "lr_end is 0.1"},
      {[](A& a) { a.lr_scheduler_type = "warmup_stable_decay"; }, "needs num_decay_steps"},
      {[](A& a) {
         a.eval_strategy = IntervalStrategy::epoch, a.lr_scheduler_type = "reduce_lr_on_plateau";
         a.lr_scheduler_kwargs = R"({"factor": 2})";
       },
       "factor"},
      {[](A& a) { a.warmup_steps = "5sec"; }, "warmup_steps"},
      {[](A& a) { a.lr_scheduler_type = "reduce_lr_on_plateau"; }, "needs evaluations"},
      {[](A& a) { a.save_steps = "5sec"; }, "cannot be times"},
      {[](A& a) { a.eval_on_start = true; }, "eval_on_start"},
      {[](A& a) { a.save_strategy = SaveStrategy::best; }, "save_strategy best"},
      {[](A& a) { a.load_best_model_at_end = true; }, "load_best_model_at_end needs evaluations"},
      {[](A& a) { a.load_best_model_at_end = true, a.eval_strategy = IntervalStrategy::epoch; },
       "eval_strategy is epoch but save_strategy is steps"},
      {[](A& a) {
         a.load_best_model_at_end = true, a.eval_strategy = IntervalStrategy::steps, a.eval_steps = 300;
       },
       "500 is none of 300"},
      {[](A& a) { a.per_device_train_batch_size = 0; }, "per_device_train_batch_size"},
      {[](A& a) { a.optim = "lion"; }, "adamw_torch_fused"}};
  return all;
}

TEST(TrainingArguments, RefusesContradictionsWithOneMessageEach) {
  for (const auto& [change, text] : contradictions()) {
    TrainingArguments args;
    change(args);
    EXPECT_THROWS(check_training_arguments(args), UsageError, text);
  }
  EXPECT_NO_THROW(check_training_arguments({}));
}

/// All keys that transformers has for each schedule.
TEST(TrainingArguments, TakeTheKeysOfEachSchedule) {
  const std::vector<std::pair<std::string, std::string>> all{
      {"cosine_warmup_with_min_lr", R"({"num_cycles": 0.5, "min_lr": 1e-6, "warmup_lr_rate": 0.1})"},
      {"cosine_with_min_lr", R"({"num_cycles": 0.5, "min_lr_rate": 0.1})"},
      {"cosine_with_restarts", R"({"num_cycles": 3})"},
      {"inverse_sqrt", R"({"timescale": 100})"},
      {"polynomial", R"({"lr_end": 1e-6, "power": 2})"},
      {"warmup_stable_decay",
       R"({"num_decay_steps": 10, "num_stable_steps": 20, "min_lr_ratio": 0.1, "warmup_type":
          "cosine", "decay_type": "1-sqrt", "num_cycles": 0.5})"},
      {"reduce_lr_on_plateau",
       R"({"mode": "max", "factor": 0.5, "patience": 2, "threshold": 0.1, "threshold_mode":
          "abs", "cooldown": 1, "min_lr": 1e-6, "eps": 1e-9})"}};
  for (const auto& [schedule, kwargs] : all) {
    TrainingArguments args;
    args.eval_strategy = IntervalStrategy::epoch;
    args.lr_scheduler_type = schedule;
    args.lr_scheduler_kwargs = kwargs;
    EXPECT_NO_THROW(check_training_arguments(args)) << schedule;
  }
}

TEST(TrainingArguments, NameTheMetricOfTheBestModel) {
  TrainingArguments args;
  EXPECT_EQ(best_metric_name(args), std::nullopt);
  args.load_best_model_at_end = true;
  EXPECT_EQ(best_metric_name(args), "eval_loss");
  EXPECT_FALSE(greater_metric_is_better(args));
  args.metric_for_best_model = "accuracy";
  EXPECT_EQ(best_metric_name(args), "eval_accuracy");
  EXPECT_TRUE(greater_metric_is_better(args));
  args.lr_scheduler_type = "reduce_lr_on_plateau";
  EXPECT_EQ(plateau_options(args).mode, "max");
  args.greater_is_better = false;
  EXPECT_FALSE(greater_metric_is_better(args));
  EXPECT_EQ(plateau_options(args).mode, "min");
}

TEST(TrainingPlan, CountsAsTransformersDoes) {
  TrainingArguments args;
  args.num_train_epochs = 2.5;
  args.warmup_steps = 0.1;
  args.save_steps = "1ep";
  const auto plan =
      make_training_plan(args, {.batches_per_epoch = 11, .accumulation_steps = 2, .samples_per_step = 8});
  EXPECT_EQ(plan.steps_per_epoch, 6);
  EXPECT_EQ(plan.max_steps, 15);
  EXPECT_EQ(plan.num_train_epochs, 3);
  EXPECT_EQ(plan.warmup_steps, 2);
  EXPECT_EQ(plan.save_steps, 6);
  EXPECT_EQ(plan.eval_steps, 500);
  EXPECT_THROWS(make_training_plan(args, {}), UsageError, "has no complete batch");
}

TEST(TrainingPlan, TakesItsLengthInAnyUnit) {
  const train::TrainingSize size{.batches_per_epoch = 10, .accumulation_steps = 1, .samples_per_step = 8};
  TrainingArguments args;
  args.max_duration = "100sp";
  EXPECT_EQ(make_training_plan(args, size).max_steps, 13);
  args.max_duration = "2ep";
  EXPECT_EQ(make_training_plan(args, size).max_steps, 20);
  args.max_duration = "90sec";
  EXPECT_EQ(make_training_plan(args, size).max_seconds, 90.0);
  args.fast_dev_run = 3;
  EXPECT_EQ(make_training_plan(args, size).max_steps, 3);
}

TEST(TrainerState, ReadsBackWhatItWrites) {
  TrainerState state;
  state.epoch = 1.5;
  state.global_step = 30;
  state.best_metric = 0.25;
  state.best_model_checkpoint = "out/checkpoint-20";
  state.log_history = {{{{"loss", std::nan("")}, {"grad_norm", INFINITY}, {"epoch", 1.5}}, 30}};
  state.stateful_callbacks = {{"Mine", R"({"seen":"NaN \" Infinity"})"}};
  state.unlogged_loss = 0.75;
  state.train_seconds = 12.5;
  state.unfinished.should_evaluate = state.unfinished.should_epoch_stop = state.unfinished_step = true;
  state.learning_rate = 1e-4;
  state.grad_norm = 1.25;
  const std::string text = trainer_state_text(state);
  EXPECT_TRUE(testing::contains_all(text, {"\"loss\": NaN", "\"grad_norm\": Infinity", "\"step\": 30"}));
  const TrainerState read = trainer_state_from(text, "trainer_state.json");
  EXPECT_EQ(read.global_step, 30);
  EXPECT_EQ(read.best_metric, 0.25);
  EXPECT_EQ(read.best_model_checkpoint, "out/checkpoint-20");
  EXPECT_TRUE(std::isnan(*read.log_history[0].find("loss")));
  EXPECT_EQ(read.log_history[0].find("grad_norm"), INFINITY);
  EXPECT_EQ(read.stateful_callbacks, state.stateful_callbacks);
  EXPECT_EQ(read.unlogged_loss, 0.75);
  EXPECT_EQ(read.train_seconds, 12.5);
  EXPECT_TRUE(read.unfinished.should_evaluate);
  EXPECT_TRUE(read.unfinished.should_epoch_stop);
  EXPECT_TRUE(read.unfinished_step);
  EXPECT_FALSE(read.unfinished.should_save);
  EXPECT_EQ(read.learning_rate, 1e-4);
  EXPECT_EQ(read.grad_norm, 1.25);
  EXPECT_EQ(trainer_state_text(read), text);
}

/// As transformers 5.23 writes it after a step.
constexpr const char* kTransformersState = R"({
  "best_global_step": null, "best_metric": null, "best_model_checkpoint": null, "epoch": 0.5, "eval_steps": 500,
  "global_step": 5, "is_hyper_param_search": false, "is_local_process_zero": true, "is_world_process_zero": true,
  "log_history": [{"epoch": 0.5, "grad_norm": NaN, "learning_rate": 4.5e-05, "loss": 0.25, "step": 5}],
  "logging_steps": 5, "max_steps": 10, "num_input_tokens_seen": 0, "num_train_epochs": 1, "save_steps": 5,
  "stateful_callbacks": {"TrainerControl": {"args": {"should_epoch_stop": false, "should_evaluate": false,
    "should_log": false, "should_save": true, "should_training_stop": false}, "attributes": {}}},
  "total_flos": 0.0, "train_batch_size": 8, "trial_name": null, "trial_params": null})";

TEST(TrainerState, ReadsWhatTransformersWrites) {
  const TrainerState state = trainer_state_from(kTransformersState, "trainer_state.json");
  EXPECT_EQ(state.global_step, 5);
  EXPECT_EQ(state.best_metric, std::nullopt);
  EXPECT_EQ(state.log_history.at(0).find("loss"), 0.25);
  EXPECT_EQ(state.log_history.at(0).step, 5);
  EXPECT_EQ(state.stateful_callbacks.count("TrainerControl"), 1U);
}

TEST(TrainerState, RefusesAFileThatIsNone) {
  EXPECT_THROWS(trainer_state_from("{}", "a/trainer_state.json"), DataError, "a/trainer_state.json", "epoch");
  EXPECT_THROWS(trainer_state_from("{", "x"), DataError, "'x'");
}

TEST(TrainerDocumentation, HoldsTheTableOfArguments) {
  std::ifstream file(LOCKSTEP_DOCS "/trainer.md");
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string table = training_argument_table().markdown_table();
  EXPECT_NE(page.find(table + "<!-- end -->"), std::string::npos)
      << "docs/trainer.md must hold this table, and <!-- end --> after it:\n"
      << table;
}

}  // namespace
}  // namespace lockstep
