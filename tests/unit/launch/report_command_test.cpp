// The page, and the command as a user starts it.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <csignal>

#include "lockstep/train/trackers.hpp"
#include "report/report_page.hpp"
#include "report/run_words.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/launch/launcher_process.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using lockstep::testing::contains_all;
using lockstep::testing::read_bytes;
using lockstep::testing::TemporaryFolder;
using lockstep::testing::write_bytes;

RunRecord record(const std::string& name) {
  RunRecord run;
  run.name = name;
  run.folder = "out/" + name;
  return run;
}

LoggedSeries series(std::initializer_list<double> values) {
  LoggedSeries logged;
  for (const double value : values)
    logged.points.push_back({static_cast<double>(logged.points.size() + 1) * 10, value, kUnknown});
  return logged;
}

TEST(ReportPage, SaysWhatIsMissing) {
  RunRecord run = record("r");
  run.series["loss"] = series({2, 1});
  const std::string page = report_page({run}, {});
  EXPECT_TRUE(contains_all(
      page, {"No gradient norm was logged.", "No learning rate was logged.", "No evaluation loss was logged.",
             "No speed over the steps", "No memory was logged", "How the time was spent is not recorded",
             "No arguments were recorded", "The training loss fell from 2 at step 10 to 1 at step 20."}));
  EXPECT_EQ(page.find("Gradient norm <small>"), std::string::npos);
}

TEST(ReportPage, HoldsNoScriptAndLoadsNothing) {
  const std::string hostile =
      "</title></svg><script>alert('x')</script><img src=\"http://a/b\" onerror=\"alert(1)\">";
  RunRecord run = record(hostile);
  run.series["loss"] = series({2, 1});
  run.series[hostile] = series({1, 2});
  run.arguments[hostile] = hostile;
  run.arguments_source = hostile;
  run.problems = {hostile};
  run.sources = {hostile};
  run.hosts = {hostile};
  run.started_from = hostile;
  run.events = {{RunEvent::Kind::failure, 10, 100, hostile}, {RunEvent::Kind::restart, 15, 100, hostile}};
  run.spent = {{hostile, 10, {{hostile, 5}, {"forward", 5}}}};
  run.spent_note = hostile;
  RunRecord other = record("other");
  other.series["loss"] = series({std::nan(""), 1});
  other.arguments[hostile] = "x";
  for (const auto& runs : {std::vector{run}, std::vector{run, other}}) {
    const std::string page = report_page(runs, {.host = hostile, .host_facts = {{hostile, hostile}}});
    for (const char* raw : {"<script", "<img", "src=\"http", "url(", "@import", "</title></svg>"})
      EXPECT_EQ(page.find(raw), std::string::npos) << raw;
    EXPECT_TRUE(contains_all(page, {"&lt;script&gt;", "default-src 'none'"}));
  }
}

TEST(ReportPage, ComparesArgumentsThatDiffer) {
  RunRecord one = record("one"), other = record("other"), silent = record("silent");
  for (auto* run : {&one, &other, &silent}) run->series["loss"] = series({2, 1});
  one.arguments = {{"learning_rate", "0.1"}, {"optim", "sgd"}, {"output_dir", "out/one"}};
  other.arguments = {{"learning_rate", "0.2"}, {"optim", "sgd"}, {"output_dir", "out/other"}};
  const std::string page = report_page({one, other, silent}, {});
  const std::string table = page.substr(page.find("Arguments that differ"),
                                        page.find("<h2>Curves") - page.find("Arguments that differ"));
  EXPECT_TRUE(contains_all(table, {"<th>learning_rate</th><td>0.1</td><td>0.2</td><td>not recorded</td>"}))
      << table;
  EXPECT_EQ(table.find("optim"), std::string::npos);
  EXPECT_EQ(table.find("output_dir"), std::string::npos);
}

TEST(ReportPage, TellsHowATrainingStands) {
  RunRecord run = record("r");
  run.series["loss"] = series({2, 1});
  run.global_step = 20;
  run.max_steps = 100;
  run.last_change = 1000;
  EXPECT_EQ(state_words(run, {.now = 1005}), "running");
  EXPECT_EQ(state_words(run, {.now = 5000}), "stopped at step 20");
  EXPECT_TRUE(contains_all(report_page({run}, {.now = 1005}),
                           {"The training has made 20 of 100 steps.",
                            "It was running when this page was written: its files changed 5 s before."}));
  run.has_ended = true;
  EXPECT_EQ(state_words(run, {.now = 5000}), "finished");
}

TEST(ReportPage, ThinsManyValues) {
  RunRecord run = record("r");
  auto& points = run.series["loss"].points;
  for (int i = 0; i < 300'000; ++i)
    points.push_back({static_cast<double>(i), 2 + std::sin(i * 0.7), kUnknown});
  points[150'000].value = 77'777;
  const std::string page = report_page({run}, {});
  EXPECT_LT(page.size(), 1'500'000U);
  EXPECT_TRUE(contains_all(page, {"77,777"}));
}

void log_steps(const fs::path& folder, int first, int last, bool ends) {
  Trackers trackers({.log_with = {"jsonl"}, .folder = folder / "runs", .resume_at = {}});
  if (first == 1) trackers.log_hyperparameters({{"seed", std::int64_t{1}}}, {});
  for (int step = first; step <= last; ++step) trackers.log({{"train/loss", 1.0 / step}}, step);
  if (ends) trackers.log({{"train/train_runtime", 5.0}}, last);
}

TEST(ReportCommand, WritesOneFile) {
  const TemporaryFolder folder;
  log_steps(folder.path(), 1, 5, true);
  const Finished written = launch({"report", folder.path().string()});
  EXPECT_EQ(written.status, 0) << written.err;
  EXPECT_EQ(written.out, "wrote " + (folder / "report.html").string() + "\n");
  EXPECT_EQ(written.err, "");
  const std::string page = read_bytes(folder / "report.html");
  EXPECT_TRUE(contains_all(
      page, {"<!DOCTYPE html>", "</html>", "prefers-color-scheme", "The training has finished"}));
  EXPECT_EQ(launch({"report", folder.path().string(), folder.path().string(), "--output",
                    (folder / "two.html").string(), "--x-axis", "time", "--no-smoothing"})
                .status,
            0);
  EXPECT_TRUE(
      contains_all(read_bytes(folder / "two.html"), {"2 trainings compared", "seconds since the first log"}));
}

TEST(ReportCommand, RefusesWhatItCannotDraw) {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  const Finished nothing = launch({"report", path});
  EXPECT_EQ(nothing.status, 1);
  EXPECT_TRUE(contains_all(nothing.err, {"lockstep report: '" + path + "' has nothing that a report shows",
                                         "trainer_state.json"}));
  EXPECT_FALSE(fs::exists(folder / "report.html"));
  EXPECT_EQ(launch({"report", path + "/missing"}).status, 2);
  EXPECT_EQ(launch({"report"}).status, 2);
  EXPECT_EQ(launch({"report", path, "--x-axis", "banana"}).status, 2);
  EXPECT_EQ(launch({"report", path, "--follow", "--interval", "0"}).status, 2);
  log_steps(folder.path(), 1, 2, true);
  const Finished unwritable = launch({"report", path, "--output", path + "/no/such/folder.html"});
  EXPECT_EQ(unwritable.status, 1);
  EXPECT_TRUE(contains_all(unwritable.err, {"/no/such"}));
}

TEST(ReportCommand, NamesWhatItCouldNotRead) {
  const TemporaryFolder folder;
  log_steps(folder.path(), 1, 5, true);
  write_bytes(folder / "trainer_state.json", "{\"global_step\": 5, \"log_hi");
  const Finished written = launch({"report", folder.path().string()});
  EXPECT_EQ(written.status, 0);
  EXPECT_TRUE(contains_all(written.err, {"lockstep report: '", "trainer_state.json' cannot be read"}));
  EXPECT_TRUE(contains_all(read_bytes(folder / "report.html"),
                           {"Not everything could be read", "trainer_state.json"}));
}

TEST(ReportCommand, FollowsATrainingUntilItEnds) {
  const TemporaryFolder folder;
  LauncherProcess following({"report", folder.path().string(), "--follow", "--interval", "1"});
  EXPECT_TRUE(
      eventually([&] { return following.err().find("waiting for the first log") != std::string::npos; }));
  log_steps(folder.path(), 1, 3, false);
  const fs::path file = folder / "report.html";
  EXPECT_TRUE(eventually([&] { return fs::exists(file); }));
  EXPECT_TRUE(
      contains_all(read_bytes(file), {"http-equiv=\"refresh\" content=\"1\"", "to 0.3333 at step 3"}));
  log_steps(folder.path(), 4, 8, true);
  const Finished ended = following.wait();
  EXPECT_EQ(ended.status, 0) << ended.err;
  const std::string page = read_bytes(file);
  EXPECT_TRUE(contains_all(page, {"The training has finished", "to 0.125 at step 8"}));
  EXPECT_EQ(page.find("http-equiv=\"refresh\""), std::string::npos);
}

TEST(ReportCommand, FollowsUntilASignal) {
  const TemporaryFolder folder;
  log_steps(folder.path(), 1, 3, false);
  LauncherProcess following({"report", folder.path().string(), "--follow", "--interval", "3600"});
  EXPECT_TRUE(eventually([&] { return following.out().find("writing ") != std::string::npos; }));
  log_steps(folder.path(), 4, 4, false);
  following.signal(SIGINT);
  const Finished ended = following.wait();
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_TRUE(contains_all(read_bytes(folder / "report.html"), {"to 0.25 at step 4"}));
}

}  // namespace
}  // namespace lockstep::launch
