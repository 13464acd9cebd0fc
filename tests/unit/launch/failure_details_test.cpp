#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "failure/error_file.hpp"
#include "launcher_process.hpp"
#include "lockstep/core/error.hpp"
#include "logs/log_forwarder.hpp"
#include "process/process_facts.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

TEST(MemoryEvents, AreReadFromBothKindsOfCgroup) {
  const ScratchFolder folder;
  fs::create_directories(folder.file("memory/job"));
  fs::create_directories(folder.file("user/job"));
  folder.write("memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  folder.write("user/job/memory.events", "low 0\nhigh 7\nmax 9\noom 5\noom_kill 4\n");
  EXPECT_EQ(oom_kills(folder.write("v1", "9:pids:/\n4:cpu,memory:/job\n0::/\n"), folder.path()), 3);
  EXPECT_EQ(oom_kills(folder.write("v2", "0::/user/job\n"), folder.path()), 4);
}

TEST(MemoryEvents, AreUnknownWhereNothingTells) {
  const ScratchFolder folder;
  EXPECT_EQ(oom_kills(folder.file("absent"), folder.path()), std::nullopt);
  EXPECT_EQ(oom_kills(folder.write("none", "0::/\nno such line\n::\n"), folder.path()), std::nullopt);
  folder.write("memory.events", "oom_kill many\n");
  EXPECT_EQ(oom_kills(folder.write("bad", "0::/\n"), folder.path()), std::nullopt);
}

TEST(LastLines, AreTheLastOnes) {
  const ScratchFolder folder;
  EXPECT_EQ(last_lines(folder.file("absent"), 3), "");
  EXPECT_EQ(last_lines(folder.write("empty", ""), 3), "");
  EXPECT_EQ(last_lines(folder.write("one", "a"), 3), "a");
  EXPECT_EQ(last_lines(folder.write("two", "a\nb\n\n"), 3), "a\nb");
  EXPECT_EQ(last_lines(folder.write("four", "a\nb\nc\nd\n"), 3), "b\nc\nd");
  EXPECT_EQ(last_lines(folder.write("long", std::string(40000, 'x')), 3).size(), 16384U);
}

/// `lockstep run` of a shell script, as somebody who names an error file for it.
Finished run_with_error_file(const std::string& script, const std::string& file) {
  return launch({"run", "sh", "-c", script}, {{"TORCHELASTIC_ERROR_FILE", file}});
}

const std::string kWriteError =
    "printf '%s' '{\"message\": {\"message\": \"ValueError: boom\"}}' > $TORCHELASTIC_ERROR_FILE; ";

TEST(ErrorFile, IsPassedOnWithTheExitCode) {
  const ScratchFolder folder;
  EXPECT_EQ(run_with_error_file(kWriteError + "exit 3", folder.file("error.json")).status, 3);
  const auto content = nlohmann::json::parse(read_file(folder.file("error.json")));
  EXPECT_EQ(content.at("message"), (nlohmann::json{{"message", "ValueError: boom"}, {"errorCode", 3}}));
}

TEST(ErrorFile, IsNotMadeWithoutAnError) {
  const ScratchFolder folder;
  EXPECT_EQ(run_with_error_file("exit 3", folder.file("error.json")).status, 3);
  EXPECT_EQ(
      run_with_error_file("printf '[' > $TORCHELASTIC_ERROR_FILE; exit 3", folder.file("error.json")).status,
      3);
  EXPECT_EQ(run_with_error_file(kWriteError + "exit 0", folder.file("error.json")).status, 0);
  EXPECT_FALSE(fs::exists(folder.file("error.json")));
}

/// The message in the file, and the code that it holds.
std::pair<std::string, int> passed_on(const std::string& file) {
  const auto content = nlohmann::json::parse(read_file(file));
  EXPECT_EQ(content.at("message").at("extraInfo").count("timestamp"), 1U) << "torchrun's reports need it";
  return {message_of(content), content.at("message").at("errorCode").get<int>()};
}

TEST(ErrorFile, HasTheLaunchersOwnReasonIfNoRankIsTheCause) {
  const ScratchFolder folder;
  const std::string file = folder.file("error.json");
  const Environment environment{{"TORCHELASTIC_ERROR_FILE", file}};
  LauncherProcess stopped({"run", "sh", "-c", "echo ready; exec sleep 60"}, environment);
  ASSERT_TRUE(eventually([&] { return stopped.out() == "ready\n"; }));
  stopped.signal(SIGTERM);
  EXPECT_EQ(stopped.wait().status, 143);
  EXPECT_EQ(passed_on(file), std::pair(std::string("the job was asked to end by SIGTERM"), 143));
  EXPECT_TRUE(is_secondary(error_content(file))) << "an outer launcher that stops it looks for another cause";

  EXPECT_EQ(launch({"run", "/no/such/program"}, environment).status, 127);
  EXPECT_EQ(passed_on(file).second, 127);
  EXPECT_TRUE(passed_on(file).first.starts_with("cannot start '/no/such/program'"));
  EXPECT_FALSE(is_secondary(error_content(file)));

  const std::vector<std::string> lonely{"run",
                                        "--nnodes",
                                        "2",
                                        "--master-port",
                                        "0",
                                        "--rdzv-backend",
                                        "c10d",
                                        "--rdzv-endpoint",
                                        "localhost:0",
                                        "--rdzv-conf",
                                        "join_timeout=0.2",
                                        "true"};
  EXPECT_EQ(launch(lonely, environment).status, 1);
  EXPECT_TRUE(passed_on(file).first.starts_with("after 0.2 s 1 node of 2 joined"));
}

TEST(ErrorFile, ThatCannotBeWrittenChangesNothingElse) {
  const Finished job = run_with_error_file(kWriteError + "exit 3", "/no/such/folder/error.json");
  EXPECT_EQ(job.status, 3);
  EXPECT_NE(job.err.find("not passed on to TORCHELASTIC_ERROR_FILE"), std::string::npos) << job.err;
}

TEST(FailureDetails, TheEndOfAKeptLogIsShown) {
  const ScratchFolder folder;
  const Finished job = launch({"run", "--log-dir", folder.path(), "--redirects", "2", "sh", "-c",
                               "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo line $i >&2; done; exit 4"});
  EXPECT_EQ(job.status, 4);
  EXPECT_NE(job.err.find("/attempt_0/0/stderr.log:\n    line 3\n    line 4\n"), std::string::npos) << job.err;
  EXPECT_NE(job.err.find("\n    line 12\n"), std::string::npos) << job.err;
  EXPECT_EQ(job.err.find("line 2\n"), std::string::npos) << job.err;
}

}  // namespace
}  // namespace lockstep::launch
