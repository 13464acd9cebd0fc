// What trackers write during training: everything in its log, once.

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "lockstep/core/error.hpp"
#include "lockstep/train/callbacks.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::arguments;
using testing::Outcome;
using testing::samples;
using testing::small_model;
using testing::StopAt;
using testing::TemporaryFolder;
using testing::train_on;

/// Step and name of a tracker's value.
using Place = std::pair<std::int64_t, std::string>;
using Scalars = std::map<Place, double>;

std::string tracker_name(const std::string& name) {
  return name.starts_with("eval_") ? "eval/" + name.substr(5) : "train/" + name;
}

/// Adds a value, which must not exist yet.
void add(Scalars& scalars, const Place& place, double value) {
  EXPECT_TRUE(scalars.emplace(place, value).second) << place.second << " twice in step " << place.first;
}

/// What the trackers should have. The epoch, which every entry has, may occur several times per step.
Scalars scalars_of(const TrainerState& state) {
  Scalars scalars;
  for (const auto& entry : state.log_history) {
    for (const auto& [name, value] : entry.values) {
      if (name != "epoch") add(scalars, {entry.step, tracker_name(name)}, value);
    }
  }
  return scalars;
}

Scalars scalars_of_jsonl(const fs::path& folder) {
  Scalars scalars;
  std::ifstream file(folder / "metrics.jsonl");
  for (std::string text; std::getline(file, text);) {
    const auto line = nlohmann::json::parse(text);
    for (const auto& [name, value] : line.items()) {
      if (name.find('/') != std::string::npos && name != "train/epoch")
        add(scalars, {line["step"], name}, value.get<double>());
    }
  }
  return scalars;
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  return fields;
}

Scalars scalars_of_csv(const fs::path& folder) {
  Scalars scalars;
  std::ifstream file(folder / "metrics.csv");
  std::string line;
  std::getline(file, line);
  const auto names = fields_of(line);
  while (std::getline(file, line)) {
    const auto fields = fields_of(line);
    for (std::size_t i = 2; i < fields.size(); ++i) {
      if (!fields[i].empty() && names[i] != "train/epoch")
        add(scalars, {std::stoll(fields[0]), names[i]}, std::stod(fields[i]));
    }
  }
  return scalars;
}

void expect_same(const Scalars& scalars, const Scalars& expected) {
  ASSERT_EQ(scalars.size(), expected.size());
  for (auto it = scalars.begin(), other = expected.begin(); it != scalars.end(); ++it, ++other) {
    EXPECT_EQ(it->first, other->first);
    EXPECT_DOUBLE_EQ(it->second, other->second) << it->first.second << " of step " << it->first.first;
  }
}

class TrackersOfRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Trainer, TrackersOfRanks, ::testing::Values(1, 2));

/// Ends a run abruptly, like a kill.
class DieAt final : public TrainerCallback {
 public:
  explicit DieAt(std::int64_t step) : step_(step) {}
  void on_step_end(CallbackContext& event) override {
    if (event.state.global_step == step_) throw Error("killed");
  }

 private:
  std::int64_t step_;
};

Outcome train(int ranks, const TrainingArguments& args,
              const std::shared_ptr<TrainerCallback>& callback = {}) {
  return train_on(ranks, args, [&](const Accelerator&) {
    TrainerComponents parts{
        .model = small_model(), .train_dataset = samples(44), .eval_dataset = samples(13)};
    if (callback) parts.callbacks.push_back(callback);
    return parts;
  });
}

/// What `lockstep report` draws of a rank: all parts of its time, no moment of it twice.
void expect_rank_record(const fs::path& folder, int rank, int ranks) {
  const auto record =
      nlohmann::json::parse(std::ifstream(folder / "ranks" / ("rank-" + std::to_string(rank) + ".json")));
  EXPECT_EQ(record.at("rank"), rank);
  EXPECT_EQ(record.at("world_size"), ranks);
  EXPECT_FALSE(record.at("host").get<std::string>().empty());
  EXPECT_TRUE(record.at("hardware").contains("memory"));
  EXPECT_GT(record.at("peak_memory_mib"), 1);
  double sum = 0;
  for (const char* part : {"loader", "forward", "backward", "optimizer", "evaluation", "checkpoint"})
    EXPECT_GT(record.at("parts").value(part, 0.0), 0) << part;
  for (const auto& [name, seconds] : record.at("parts").items()) sum += seconds.get<double>();
  EXPECT_LE(sum, record.at("seconds").get<double>());
}

TEST_P(TrackersOfRanks, HaveTheLogOnceAfterKillsAndRestarts) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.report_to = {"jsonl", "csv", "tensorboard"};
  args.run_name = "one";
  args.logging_steps = 1;
  args.eval_strategy = IntervalStrategy::steps, args.save_strategy = SaveStrategy::steps;
  args.eval_steps = 3;
  args.save_steps = 4;
  EXPECT_THROW(train(GetParam(), args, std::make_shared<DieAt>(3)), Error);
  EXPECT_THROW(train(GetParam(), args, std::make_shared<DieAt>(6)), Error);
  EXPECT_TRUE(train(GetParam(), args, std::make_shared<StopAt>(6)).output.preempted);
  const Outcome last = train(GetParam(), args);
  EXPECT_EQ(last.output.global_step, GetParam() == 1 ? 18 : 9);
  const fs::path runs = fs::path(args.output_dir) / "runs" / "one";
  const Scalars expected = scalars_of(last.state);
  EXPECT_EQ(expected.count({3, "train/loss"}) + expected.count({3, "eval/loss"}), 2U);
  expect_same(scalars_of_jsonl(runs), expected);
  expect_same(scalars_of_csv(runs), expected);
  const auto files = std::distance(fs::directory_iterator(runs), fs::directory_iterator());
  EXPECT_EQ(files, 2 + 4) << "and TensorBoard's, one of each process";
  for (int rank = 0; rank < GetParam(); ++rank) expect_rank_record(args.output_dir, rank, GetParam());
}

TEST_P(TrackersOfRanks, HaveOnlyTheTrainingThatBeganAgain) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.report_to = {"jsonl", "csv"};
  args.logging_steps = 1;
  train(GetParam(), args);
  args.resume_from_checkpoint = "never";
  args.learning_rate /= 2;
  args.max_steps = 4;
  const Scalars expected = scalars_of(train(GetParam(), args).state);
  expect_same(scalars_of_jsonl(fs::path(args.output_dir) / "runs"), expected);
  expect_same(scalars_of_csv(fs::path(args.output_dir) / "runs"), expected);
}

/// Trackers opened by an evaluation are closed before training opens them.
TEST_P(TrackersOfRanks, HaveTheLogOnceAfterAnEvaluation) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.report_to = {"jsonl", "csv"};
  args.resume_from_checkpoint = "never";
  testing::run_accelerators(
      GetParam(),
      [&](const Accelerator& accelerator) {
        Trainer trainer(accelerator, args, {.model = small_model(), .train_dataset = samples(44)});
        trainer.evaluate(samples(13));
        Scalars expected = scalars_of(trainer.state());
        trainer.train();
        expected.merge(scalars_of(trainer.state()));
        if (!accelerator.is_main_process()) return;
        expect_same(scalars_of_jsonl(fs::path(args.output_dir) / "runs"), expected);
        expect_same(scalars_of_csv(fs::path(args.output_dir) / "runs"), expected);
      },
      accelerator_options(args));
}

TEST(TrainerTrackers, AreNotOpenedForNone) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.report_to = {"none"};
  args.num_train_epochs = 1;
  ::testing::internal::CaptureStdout();
  testing::train_plainly(1, args);
  EXPECT_EQ(::testing::internal::GetCapturedStdout().find("report: "), std::string::npos);
  EXPECT_FALSE(fs::exists(fs::path(args.output_dir) / "runs"));
  EXPECT_FALSE(fs::exists(fs::path(args.output_dir) / "ranks"));
  EXPECT_EQ(report_command(args), "");
}

/// Once, by the rank that logs; where the files are, in a shell's words.
TEST_P(TrackersOfRanks, AreNamedForTheReportInTheLastLine) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.report_to = {"jsonl"};
  args.num_train_epochs = 1;
  ::testing::internal::CaptureStdout();
  testing::train_plainly(GetParam(), args);
  const std::string printed = ::testing::internal::GetCapturedStdout();
  const std::string line = "report: lockstep report " + args.output_dir + "\n";
  EXPECT_TRUE(printed.ends_with("\n" + line)) << printed;
  EXPECT_EQ(printed.find("report: "), printed.size() - line.size()) << printed;
  args.report_to = {"csv"};
  args.logging_dir = args.output_dir + "/it's here";
  fs::create_directories(args.logging_dir);
  EXPECT_EQ(report_command(args), "lockstep report " + args.output_dir);
  args.output_dir += "/runs";
  EXPECT_EQ(report_command(args), "lockstep report '" + folder.path().string() + "/out/it'\\''s here'");
  args.report_to = {};
  EXPECT_EQ(report_command(args), "") << "there are no checkpoints";
  fs::create_directories(args.output_dir + "/checkpoint-3");
  std::ofstream(args.output_dir + "/checkpoint-3/trainer_state.json") << "{}";
  EXPECT_EQ(report_command(args), "lockstep report " + args.output_dir);
}

TEST(TrainerTrackers, TakeAnEvaluationAfterTheTraining) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.report_to = {"jsonl"};
  testing::run_accelerators(
      1,
      [&](const Accelerator& accelerator) {
        Trainer trainer(accelerator, args, {.model = small_model(), .train_dataset = samples(44)});
        trainer.train();
        trainer.evaluate(samples(13));
        expect_same(scalars_of_jsonl(fs::path(args.output_dir) / "runs"), scalars_of(trainer.state()));
      },
      accelerator_options(args));
}

/// Reports a fixed number of operations per micro-batch.
class CountedTrainer final : public Trainer {
 public:
  using Trainer::Trainer;
  double floating_point_operations(const Batch& batch) override {
    return 1000.0 * static_cast<double>(batch.size());
  }
};

TEST_P(TrackersOfRanks, HaveWhatTheMonitorsSee) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.report_to = {"jsonl"};
  const auto parts = [] {
    const ThroughputOptions told{.tokens_per_sample = 10, .peak_flops_per_device = 1e12};
    return TrainerComponents{
        .model = small_model(),
        .train_dataset = samples(44),
        .callbacks = {std::make_shared<ThroughputCallback>(told), std::make_shared<MemoryCallback>(),
                      std::make_shared<LearningRateMonitor>()}};
  };
  testing::run_accelerators(
      GetParam(),
      [&](const Accelerator& accelerator) {
        CountedTrainer trainer(accelerator, args, parts());
        trainer.train();
        if (!accelerator.is_main_process()) return;
        // Ranks with fewer samples repeat some.
        EXPECT_GE(trainer.state().total_flos, 1000.0 * 3 * 44);
        EXPECT_LE(trainer.state().total_flos, 1000.0 * 3 * 48);
      },
      accelerator_options(args));
  Scalars seen = scalars_of_jsonl(fs::path(args.output_dir) / "runs");
  // The last step of an epoch is not full.
  const auto samples_until = [](std::int64_t step) {
    const std::int64_t of_a_step = 8 * GetParam(), steps = (44 + of_a_step - 1) / of_a_step;
    return static_cast<double>(step / steps * 44 + step % steps * of_a_step);
  };
  for (const std::int64_t step : {2, 4, 6, 8}) {
    const auto value = [&](const std::string& name) { return seen[{step, name}]; };
    EXPECT_GT(value("throughput/samples_per_second"), 0);
    EXPECT_DOUBLE_EQ(value("throughput/tokens_per_second"), 10 * value("throughput/samples_per_second"));
    EXPECT_NEAR(value("throughput/samples_per_second") / value("throughput/steps_per_second"),
                (samples_until(step) - samples_until(step - 2)) / 2.0, 1e-6);
    EXPECT_GT(value("throughput/mfu"), 0);
    EXPECT_LT(value("throughput/mfu"), 1);
    EXPECT_GT(value("memory/peak_rss_mib"), 10);
    EXPECT_DOUBLE_EQ(value("lr/group_0"), value("lr/group_1"));
    EXPECT_LT(value("lr/group_0"), 0.05);
    EXPECT_GT(value("lr/group_0"), 0);
  }
}

TEST(ThroughputCallback, KnowsThePeakOfADeviceByItsName) {
  EXPECT_EQ(peak_flops("NVIDIA H200", MixedPrecision::bf16, false), 989.4e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 80GB HBM3", MixedPrecision::fp16, true), 989.4e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 PCIe", MixedPrecision::bf16, false), 756e12);
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB", MixedPrecision::no, true), 156e12);
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB", MixedPrecision::no, false), 19.5e12);
  EXPECT_EQ(peak_flops("NVIDIA A10", MixedPrecision::bf16, false), 125e12);
  EXPECT_EQ(peak_flops("NVIDIA A10G", MixedPrecision::bf16, false), 0);
  EXPECT_EQ(peak_flops("", MixedPrecision::no, false), 0);
}

TEST(TrainerProgress, ShowsStepsRatesAndTheLoss) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.disable_tqdm = false;
  ::testing::internal::CaptureStderr();
  train(1, args);
  const std::string shown = ::testing::internal::GetCapturedStderr();
  for (const char* part : {"training: 100%", "18/18", "it/s", "samples/s=", "loss=", "lr="})
    EXPECT_NE(shown.find(part), std::string::npos) << part << " in " << shown;
}

std::set<std::int64_t> steps_of_jsonl(const fs::path& folder) {
  std::set<std::int64_t> steps;
  std::ifstream file(folder / "metrics.jsonl");
  for (std::string text; std::getline(file, text);) {
    const auto line = nlohmann::json::parse(text);
    for (const auto& [name, value] : line.items()) {
      if (name.find('/') != std::string::npos) steps.insert(line["step"].get<std::int64_t>());
    }
  }
  return steps;
}

/// Evaluations outside of train() open a Trainer's files, which stay open until the next run's are.
TEST(TrainerTrackers, OfTrainersThatShareAnAcceleratorAreTheirOwn) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.report_to = {"jsonl"};
  Accelerator accelerator(World::single(), accelerator_options(args));
  accelerator.init_trackers({.log_with = {"jsonl"}, .folder = folder / "program"});
  args.output_dir = folder / "one";
  Trainer one(accelerator, args,
              {.model = small_model(), .train_dataset = samples(44), .eval_dataset = samples(9)});
  args.output_dir = folder / "two";
  args.num_train_epochs = 1;
  {
    Trainer two(accelerator, args,
                {.model = small_model(), .train_dataset = samples(44), .eval_dataset = samples(9)});
    one.train();
    one.evaluate();
    two.evaluate();
    two.train();
    two.evaluate();
    one.evaluate();
    Scalars own = scalars_of_jsonl(folder / "two/runs");
    std::erase_if(own, [](const auto& entry) { return entry.first.first == 0; });  // Before the training.
    EXPECT_EQ(own, scalars_of(two.state()));
    EXPECT_LT(two.state().global_step, one.state().global_step);
  }
  const auto steps = steps_of_jsonl(folder / "one/runs");
  EXPECT_EQ(*steps.rbegin(), one.state().global_step);
  EXPECT_FALSE(steps.contains(0)) << "that is the other one's evaluation";
  // The program's own tracker gets everything, until the program closes it.
  accelerator.log({{"mark", 1}}, 100);
  accelerator.end_training();
  std::ifstream program(folder / "program/metrics.jsonl");
  const std::string text{std::istreambuf_iterator<char>(program), {}};
  EXPECT_NE(text.find("mark"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
