// What a report reads: the trackers' own files, those of transformers, and whatever else may lie there.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/checkpoint_folder.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/trackers.hpp"
#include "report/event_files.hpp"
#include "report/lenient_json.hpp"
#include "report/run_reader.hpp"
#include "report/text_lines.hpp"
#include "report/time_shares.hpp"
#include "report/tracker_tables.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "train/trackers/tensorboard_events.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using lockstep::testing::contains_all;
using lockstep::testing::read_bytes;
using lockstep::testing::TemporaryFolder;
using lockstep::testing::write_bytes;

const std::vector<std::string> kAllTrackers{"jsonl", "csv", "tensorboard"};

void log_losses(const fs::path& folder, const std::vector<std::string>& kinds, int first, int last,
                std::optional<std::int64_t> resume_at = 0) {
  Trackers trackers({.log_with = kinds, .folder = folder, .resume_at = resume_at});
  trackers.log_hyperparameters({{"learning_rate", 0.5}, {"optim", std::string("sgd")}, {"bf16", true}}, {});
  for (int step = first; step <= last; ++step)
    trackers.log({{"train/loss", 1.0 / step}, {"train/epoch", step / 4.0}}, step);
  trackers.finish();
}

std::vector<double> steps_of(const std::vector<LoggedPoint>& points) {
  std::vector<double> steps;
  for (const auto& point : points) steps.push_back(point.step);
  return steps;
}

std::string problems_of(const RunRecord& run) {
  std::string text;
  for (const auto& problem : run.problems) text += problem + "\n";
  return text;
}

constexpr const char* kState =
    R"({"epoch": 2.0, "global_step": 4, "max_steps": 8, "num_train_epochs": 4, "log_history": [
  {"loss": 2.0, "grad_norm": NaN, "learning_rate": 0.1, "epoch": 1.0, "step": 2},
  {"eval_loss": 1.5, "eval_runtime": 2.0, "epoch": 1.0, "step": 2},
  {"loss": Infinity, "learning_rate": 0.05, "epoch": 2.0, "step": 4}, {"loss": 3}],
  "stateful_callbacks": {"LockstepTrainer": {"attributes": {"num_samples_seen": 128, "total_batch_size": 32, "train_seconds": 10.0}}}})";

class EachTracker : public ::testing::TestWithParam<std::string> {};

TEST_P(EachTracker, IsReadAsItWasWritten) {
  const TemporaryFolder folder;
  Trackers trackers({.log_with = {GetParam()}, .folder = folder / "runs"});
  trackers.log_hyperparameters({{"learning_rate", 0.5}, {"optim", std::string("sgd")}, {"bf16", true}}, {});
  trackers.log({{"train/loss", 2.5}, {"a \"quoted\", <name>", 1.0}}, 1);
  trackers.log({{"train/loss", std::nan("")}}, 2);
  trackers.log({{"train/loss", std::numeric_limits<double>::infinity()}}, 3);
  trackers.log({{"eval/loss", 0.25}}, 3);
  const RunRecord run = read_run(folder.path());
  EXPECT_EQ(problems_of(run), "");
  const auto& loss = run.points_of("loss");
  ASSERT_EQ(loss.size(), 3U);
  EXPECT_EQ(loss[0].value, 2.5);
  EXPECT_TRUE(std::isnan(loss[1].value));
  EXPECT_TRUE(std::isinf(loss[2].value));
  EXPECT_GT(loss[0].time, 1.7e9);
  EXPECT_EQ(run.points_of("eval_loss").at(0).value, 0.25);
  EXPECT_EQ(run.points_of("a \"quoted\", <name>").at(0).value, 1);
  EXPECT_EQ(run.clock.size(), 3U);
  EXPECT_FALSE(run.has_ended);
  if (GetParam() == "csv") return;
  EXPECT_EQ(run.arguments.at("learning_rate"), "0.5");
  EXPECT_EQ(run.arguments.at("optim"), "sgd");
  EXPECT_EQ(run.arguments.at("bf16"), "true");
}

/// Killed after step 6, resumed from the checkpoint of step 4.
TEST_P(EachTracker, CountsTheStepsOfAResumedTrainingOnce) {
  const TemporaryFolder folder;
  log_losses(folder / "runs", {GetParam()}, 1, 6);
  log_losses(folder / "runs", {GetParam()}, 5, 8, 4);
  const RunRecord run = read_run(folder.path());
  EXPECT_EQ(steps_of(run.points_of("loss")), (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}));
  if (GetParam() == "csv") return;
  ASSERT_EQ(run.events.size(), 1U);
  EXPECT_EQ(run.events[0].kind, RunEvent::Kind::restart);
  EXPECT_EQ(run.events[0].step, 4);
  EXPECT_EQ(run.events[0].text, "continued after step 4");
}

/// At every length that a kill may leave.
TEST_P(EachTracker, IsReadAtEveryLength) {
  const TemporaryFolder folder;
  log_losses(folder / "whole", {GetParam()}, 1, 3);
  fs::path file;
  for (const auto& entry : fs::directory_iterator(folder / "whole")) file = entry.path();
  const std::string bytes = read_bytes(file);
  fs::create_directory(folder / "cut");
  std::size_t most = 0;
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    write_bytes(folder / "cut" / file.filename().string(), bytes.substr(0, size));
    try {
      const RunRecord run = read_run(folder / "cut");
      EXPECT_EQ(problems_of(run), "") << size;
      EXPECT_GE(run.points_of("loss").size(), most);
      most = run.points_of("loss").size();
    } catch (const DataError& error) {
      EXPECT_EQ(most, 0U) << error.what();
    }
  }
  EXPECT_EQ(most, 3U);
}

/// Each byte in turn is another one: nothing crashes, and nothing is a number that nobody logged without a
/// word.
TEST_P(EachTracker, IsReadWithEveryByteDamaged) {
  const TemporaryFolder folder;
  log_losses(folder / "whole", {GetParam()}, 1, 3);
  fs::path file;
  for (const auto& entry : fs::directory_iterator(folder / "whole")) file = entry.path();
  const std::string bytes = read_bytes(file);
  fs::create_directory(folder / "bad");
  for (std::size_t place = 0; place < bytes.size(); ++place) {
    for (const char flipped : {'\x01', '\x80'}) {
      std::string damaged = bytes;
      damaged[place] = static_cast<char>(damaged[place] ^ flipped);
      write_bytes(folder / "bad" / file.filename().string(), damaged);
      try {
        const RunRecord run = read_run(folder / "bad");
        if (GetParam() == "tensorboard") {
          EXPECT_TRUE(!run.problems.empty() || run.points_of("loss").size() < 3) << place;
        }
      } catch (const DataError&) {
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Report, EachTracker, ::testing::ValuesIn(kAllTrackers),
                         [](const auto& each) { return each.param; });

TEST(EventFiles, AreThoseOfTensorFlow2Too) {
  // A scalar in a tensor of one float: tensor { dtype: DT_FLOAT, tensor_content: 0.5f }, and float_val:
  // 0.25f.
  const TemporaryFolder folder;
  const auto event = [](char step, const std::string& tensor) {
    const std::string value = std::string(
                                  "\x0a\x09"
                                  "eval/loss",
                                  11) +
                              "\x42" + static_cast<char>(tensor.size()) + tensor;
    const std::string summary = "\x0a" + std::string(1, static_cast<char>(value.size())) + value;
    return std::string("\x10") + step + "\x2a" + static_cast<char>(summary.size()) + summary;
  };
  write_bytes(folder / "events.out.tfevents.1.node.x.5.0",
              events::record(event(1, std::string("\x08\x01\x22\x04\x00\x00\x00\x3f", 8))) +
                  events::record(event(2, std::string("\x08\x01\x2d\x00\x00\x80\x3e", 7))));
  const RunRecord run = read_run(folder.path());
  ASSERT_EQ(run.points_of("eval_loss").size(), 2U) << problems_of(run);
  EXPECT_EQ(run.points_of("eval_loss")[0].value, 0.5);
  EXPECT_EQ(run.points_of("eval_loss")[1].value, 0.25);
  EXPECT_EQ(*run.hosts.begin(), "node.x");
}

TEST(EventFiles, HaveTheArgumentsOfTransformers) {
  const TemporaryFolder folder;
  const std::string good = events::text(
      1.0, 0, "args", R"({"learning_rate": 5e-05, "optim": "adamw_torch", "x": NaN, "seed": null})");
  write_bytes(folder / "events.out.tfevents.1.h.1.0",
              events::record(good) + events::record(events::text(1.0, 0, "note", "{}")) +
                  events::record(events::text(1.0, 0, "args", "{no json")) +
                  events::record(events::scalar(1.0, 1, "train/loss", 2.0)));
  const RunRecord run = read_run(folder.path());
  EXPECT_EQ(run.arguments.at("learning_rate"), "5e-05");
  EXPECT_EQ(run.arguments.at("optim"), "adamw_torch");
  EXPECT_EQ(run.arguments.at("x"), "NaN");
  EXPECT_TRUE(contains_all(problems_of(run), {"the text \"args\" cannot be read"}));
}

TEST(RunReader, NamesTracesThatItCannotRead) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "trace");
  write_bytes(folder / "trainer_state.json", kState);
  for (const char* text : {"", "{}", "[1, 2]", "{\"rank\": \"x\"}", "\xff"}) {
    write_bytes(folder / "trace" / "trace-rank-0.json", text);
    const RunRecord run = read_run(folder.path());
    EXPECT_TRUE(contains_all(problems_of(run), {"trace-rank-0.json' is not a trace of a rank"})) << text;
    EXPECT_EQ(run.points_of("loss").size(), 2U);
  }
}

TEST(RunReader, NamesLinesThatItLeavesOut) {
  const TemporaryFolder folder;
  write_bytes(folder / "metrics.jsonl",
              "{\"step\":1,\"train/loss\":2}\nno json\n{\"step\":2,\"train/loss\":\"nan\"}\n[]\n"
              "{\"step\":NaN}\n\xff\n{\"step\":3,\"train/loss\":-Infinity}\n{\"step\":4,\"tr");
  const RunRecord run = read_run(folder.path());
  EXPECT_EQ(steps_of(run.points_of("loss")), (std::vector<double>{1, 2, 3}));
  EXPECT_TRUE(contains_all(problems_of(run),
                           {"metrics.jsonl: 4 lines were left out; the first, line 2: it cannot be read"}));
}

TEST(RunReader, ReadsTheStateOfTheNewestCheckpoint) {
  const TemporaryFolder folder;
  for (const int step : {2, 4}) {
    const CheckpointInfo info{
        .step = step, .world_size = 2, .lockstep_version = "0.2.0", .libtorch_version = "2.11.0"};
    write_checkpoint(folder / checkpoint_name(step), info, [&](const fs::path& place) {
      write_bytes(place / "trainer_state.json",
                  step == 4 ? kState : "{\"global_step\": 2, \"log_history\": []}");
      write_bytes(place / "training_args.json", "{\"learning_rate\": 0.1, \"fsdp\": \"\", \"seed\": null}");
      return FileDigests{};
    });
  }
  const RunRecord run = read_run(folder.path());
  EXPECT_EQ(run.global_step, 4);
  EXPECT_EQ(run.max_steps, 8);
  EXPECT_EQ(run.samples_per_step, 32);
  EXPECT_EQ(run.world_size, 2);
  EXPECT_EQ(run.lockstep_version, "0.2.0");
  EXPECT_EQ(run.arguments.at("seed"), "none");
  EXPECT_TRUE(std::isinf(run.points_of("loss").at(1).value));
  EXPECT_TRUE(std::isnan(run.points_of("grad_norm").at(0).value));
  ASSERT_EQ(run.events.size(), 2U);
  EXPECT_EQ(run.events[1].step, 4);
  EXPECT_TRUE(contains_all(problems_of(run), {"1 entries of its log_history have no step"}));
  // The only times: 2 of 10 seconds were an evaluation.
  ASSERT_EQ(run.spent.size(), 1U);
  EXPECT_EQ(run.spent[0].shares.at(1).what, "evaluation");
  EXPECT_EQ(run.spent[0].shares.at(1).seconds, 2);
}

TEST(RunReader, KnowsNoLastStepOfATrainingThatATimeEnds) {
  const TemporaryFolder folder;
  const CheckpointInfo info{
      .step = 40, .world_size = 1, .lockstep_version = "0.2.0", .libtorch_version = "2.11.0"};
  write_checkpoint(folder / checkpoint_name(40), info, [&](const fs::path& place) {
    write_bytes(place / "trainer_state.json",
                R"({"global_step": 40, "max_steps": 4611686018427387903, "log_history": []})");
    return FileDigests{};
  });
  const RunRecord run = read_run(folder.path());
  EXPECT_EQ(run.global_step, 40);
  EXPECT_FALSE(run.max_steps.has_value());
}

TEST(RunReader, TakesAnOlderCheckpointWhereTheNewestIsDamaged) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "checkpoint-2");
  fs::create_directories(folder / "checkpoint-10");
  write_bytes(folder / "checkpoint-2" / "trainer_state.json", kState);
  write_bytes(folder / "checkpoint-10" / "trainer_state.json", std::string(kState).substr(0, 100));
  const RunRecord run = read_run(folder.path());
  EXPECT_EQ(run.points_of("loss").size(), 2U);
  EXPECT_TRUE(contains_all(problems_of(run),
                           {"checkpoint-10/trainer_state.json' cannot be read: it is not valid JSON"}));
}

TEST(RunReader, RefusesForeignFiles) {
  const TemporaryFolder folder;
  EXPECT_THROWS(read_run(folder / "nothing"), UsageError, "is not a folder");
  EXPECT_THROWS(read_run(folder.path()), DataError, folder.path().string(), "trainer_state.json",
                "metrics.jsonl", "events.out.tfevents.*", "trace-rank-<rank>.json");
  const std::string deep(100'000, '[');
  for (const auto& text :
       {std::string("[]"), std::string("{}"), std::string("null"), std::string(""), deep,
        std::string("{\"global_step\": \"x\"}"), std::string("{\"global_step\": 1, \"log_history\": 7}"),
        std::string("{\"a\": 1, \"a\": 2}"), std::string(3, '\0')}) {
    write_bytes(folder / "trainer_state.json", text);
    EXPECT_THROWS(read_run(folder.path()), DataError, folder.path().string());
  }
  fs::remove(folder / "trainer_state.json");
  fs::create_directory(folder / "trainer_state.json");
  EXPECT_THROWS(read_run(folder.path()), DataError, "has nothing that a report shows");
}

TEST(RunReader, FindsFailuresOfAttempts) {
  const TemporaryFolder folder;
  const fs::path job = folder / "logs" / "none_1";
  fs::create_directories(job / "attempt_0" / "0");
  fs::create_directories(job / "attempt_0" / "1");
  write_bytes(
      job / "attempt_0" / "0" / "error.json",
      R"({"message": {"message": "rank 1 is lost", "extraInfo": {"timestamp": "100", "is_secondary": true}}})");
  write_bytes(job / "attempt_0" / "1" / "error.json",
              R"({"message": {"message": "out of <memory>", "extraInfo": {"timestamp": "101"}}})");
  write_bytes(folder / "trainer_state.json", kState);
  const RunRecord run = read_run(folder.path());
  ASSERT_EQ(run.events.size(), 1U);
  EXPECT_EQ(run.events[0].kind, RunEvent::Kind::failure);
  EXPECT_EQ(run.events[0].text, "logs/none_1/attempt_0: local rank 1 failed: out of <memory>");
  EXPECT_EQ(run.events[0].time, 101);
}

/// Ranks that are killed write no error file.
TEST(RunReader, FindsAttemptsThatWereFollowedByAnother) {
  const TemporaryFolder folder;
  log_losses(folder / "runs", {"jsonl"}, 1, 3);
  for (const char* attempt : {"attempt_0", "attempt_1", "attempt_10"}) {
    fs::create_directories(folder / "logs" / attempt / "0");
    const fs::path output = folder / "logs" / attempt / "0" / "stderr.log";
    write_bytes(output, "killed");
    fs::last_write_time(output, fs::file_time_type::clock::now() + std::chrono::seconds(10));
  }
  const RunRecord run = read_run(folder.path());
  ASSERT_EQ(run.events.size(), 2U);
  EXPECT_TRUE(contains_all(run.events[0].text, {"logs/attempt_0: it failed without an error file"}));
  EXPECT_TRUE(contains_all(run.events[1].text, {"logs/attempt_1: "}));
  // After the last log.
  EXPECT_EQ(run.events[0].step, 3);
}

TEST(RunReader, ShowsTheNewestOfSeveralTrackedTrainings) {
  const TemporaryFolder folder;
  log_losses(folder / "runs" / "one", {"jsonl"}, 1, 3);
  log_losses(folder / "runs" / "two", {"jsonl"}, 1, 5);
  fs::last_write_time(folder / "runs" / "one" / "metrics.jsonl",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  const RunRecord run = read_run(folder.path());
  EXPECT_EQ(run.points_of("loss").size(), 5U);
  EXPECT_TRUE(contains_all(problems_of(run), {"runs/one' are of another training"}));
}

TracedSpan span(const char* name, std::int64_t begin, std::int64_t end, long thread = 1) {
  return {name, thread, begin * 1'000'000'000, end * 1'000'000'000};
}

TracedOperation operation(std::uint64_t number, std::int64_t begin, std::int64_t end) {
  TracedOperation result;
  result.group = "world";
  result.number = number;
  result.name = "all_reduce";
  result.begin = begin * 1'000'000'000;
  result.end = end * 1'000'000'000;
  return result;
}

double seconds_of(const SpentTime& spent, const std::string& what) {
  const auto found = std::ranges::find(spent.shares, what, &TimeShare::what);
  return found == spent.shares.end() ? 0 : found->seconds;
}

TEST(TimeShares, DivideAStep) {
  RankTrace trace;
  trace.rank = 3;
  trace.spans = {span("forward", 0, 3),  span("backward", 3, 8),  span("optimizer", 9, 10),
                 span("loader", 10, 11), span("forward", 12, 14), span("elsewhere", 0, 5, 2)};
  // Overlaps the end of backward, and ends a second after it; the other lies within the loader.
  trace.operations = {operation(1, 6, 9), operation(2, 10, 11)};
  const SpentTime spent = spent_time_of(trace);
  EXPECT_EQ(spent.who, "rank 3");
  EXPECT_EQ(spent.seconds, 14);
  EXPECT_EQ(seconds_of(spent, "forward"), 5);
  EXPECT_EQ(seconds_of(spent, "backward"), 3);
  EXPECT_EQ(seconds_of(spent, kOverlapped), 2);
  EXPECT_EQ(seconds_of(spent, kCommunicationAlone), 1);
  EXPECT_EQ(seconds_of(spent, "optimizer"), 1);
  EXPECT_EQ(seconds_of(spent, "loader"), 1);
  EXPECT_EQ(seconds_of(spent, kBetweenRanges), 1);
}

/// The trace's clock began 1000 s after 1970. The second evaluation is one of an earlier attempt, the third
/// has no time.
TEST(TimeShares, KnowLoggedEvaluations) {
  RankTrace trace;
  trace.wall_offset = 1000 * std::int64_t{1'000'000'000};
  trace.spans = {span("forward", 0, 3), span("optimizer", 9, 10)};
  trace.operations = {operation(1, 6, 7)};
  add_evaluations(trace, trace, {{1008, 4}, {900, 4}, {kUnknown, 4}, {1e300, -1}, {1009, kUnknown}});
  const SpentTime spent = spent_time_of(trace);
  EXPECT_EQ(spent.seconds, 10);
  EXPECT_EQ(seconds_of(spent, "evaluation"), 4);
  EXPECT_EQ(seconds_of(spent, kBetweenRanges), 2);
  EXPECT_EQ(seconds_of(spent, kCommunicationAlone), 0);
}

/// The recorder keeps the last operations: what lies before them would look as if nothing was communicated.
/// A forward or a batch of an evaluation is a part of that.
TEST(TimeShares, CountAllOfAnEvaluationAndOfACheckpoint) {
  RankTrace trace;
  trace.spans = {{"evaluation", 1, 0, 100},
                 {"loader", 1, 10, 20},
                 {"forward", 1, 20, 90},
                 {"checkpoint", 1, 100, 150},
                 {"forward", 1, 150, 200}};
  std::string shares;
  for (const auto& share : spent_time_of(trace).shares)
    shares += share.what + " " + std::to_string(static_cast<int>(share.seconds * 1e9 + 0.5)) + ";";
  EXPECT_EQ(shares, "forward 50;evaluation 100;checkpoint 50;");
  // Logged ones are not added to those of the trace.
  trace.wall_offset = 0;
  add_evaluations(trace, trace, {{1.5e-7, 1e-7}});
  EXPECT_EQ(trace.spans.size(), 5U);
}

TEST(TimeShares, CoverWhatIsRecordedOfBoth) {
  RankTrace trace;
  trace.spans = {span("forward", 0, 4), span("forward", 6, 8), span("forward", 9, 10)};
  trace.operations = {operation(50, 5, 6), operation(51, 8, 9)};
  const SpentTime spent = spent_time_of(trace);
  EXPECT_EQ(spent.seconds, 5);
  EXPECT_EQ(seconds_of(spent, "forward"), 3);
  EXPECT_EQ(seconds_of(spent, kCommunicationAlone), 2);
  EXPECT_EQ(spent_time_of(RankTrace()).seconds, 0);
}

TEST(TextLines, ReadLongAndUnfinishedOnes) {
  const TemporaryFolder folder;
  write_bytes(folder / "x", "a\r\n" + std::string(5'000'000, 'b') + "\n\nlast");
  std::vector<std::tuple<std::size_t, bool, bool>> lines;
  read_lines(folder / "x", [&](const TextLine& line) {
    lines.emplace_back(line.text.size(), line.is_complete, line.is_cut);
  });
  EXPECT_EQ(lines, (decltype(lines){
                       {1, true, false}, {4'194'304, true, true}, {0, true, false}, {4, false, false}}));
}

TEST(LenientJson, ReadsPythonsNumbers) {
  const auto value =
      parse_python_text(R"({"a": NaN, "b": [-Infinity, Infinity], "NaN": "Infinity \" NaN"})", "it");
  EXPECT_TRUE(std::isnan(*number_at(value, "a")));
  EXPECT_EQ(number_in(value["b"][0]), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(value["NaN"], "Infinity \" NaN");
  EXPECT_EQ(number_in("12"), std::nullopt);
  EXPECT_EQ(number_in("nan").has_value(), true);
  EXPECT_THROWS(parse_python_text("{\"a\": NaNa}", "it"), DataError, "not valid JSON");
}

}  // namespace
}  // namespace lockstep::launch
