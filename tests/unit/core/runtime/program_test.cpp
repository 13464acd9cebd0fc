#include "lockstep/core/runtime/program.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

/// What run_program returned and wrote to standard error.
struct Outcome {
  int exit_code;
  std::string text;
};

Outcome run(const std::function<int()>& body) {
  ::testing::internal::CaptureStderr();
  const int exit_code = run_program("trainer", body);
  return {exit_code, ::testing::internal::GetCapturedStderr()};
}

TEST(RunProgram, ReturnsWhatTheBodyReturns) {
  const Outcome outcome = run([] { return 7; });
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_EQ(outcome.text, "");
}

TEST(RunProgram, TurnsExceptionsIntoOneLineAndACode) {
  EXPECT_EQ(run([]() -> int { throw UsageError("bad flag"); }).exit_code, 2);
  EXPECT_EQ(run([]() -> int { throw DataError("bad file"); }).exit_code, 1);
  EXPECT_EQ(run([]() -> int { throw CommunicationError("lost"); }).exit_code, 1);
  EXPECT_EQ(run([]() -> int { throw TimeoutError("late"); }).exit_code, kTimeoutExitCode);
  EXPECT_EQ(run([]() -> int { throw std::bad_alloc(); }).exit_code, 1);
  EXPECT_EQ(run([]() -> int { throw 3; }).exit_code, 1);
  EXPECT_EQ(run([]() -> int { throw DataError("bad file"); }).text, "trainer: error: bad file\n");
  EXPECT_EQ(run([]() -> int {
              throw std::runtime_error("size mismatch\nException raised from add at x.cpp:1\nframe #0: ...");
            }).text,
            "trainer: error: size mismatch\n");
  EXPECT_EQ(run([]() -> int { throw Error("\none\n   two  three\r\n\nfour\n"); }).text,
            "trainer: error: one two  three four\n");
}

TEST(RunProgram, AnErrorThatAllRanksMostlyHaveIsPrintedByRank0) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "error.json";
  const auto text_of = [](const char* rank, const std::string& error_file, const std::function<int()>& body) {
    setenv("RANK", rank, 1);
    setenv("TORCHELASTIC_ERROR_FILE", error_file.c_str(), 1);
    const Outcome outcome = run(body);
    unsetenv("RANK");
    unsetenv("TORCHELASTIC_ERROR_FILE");
    return outcome.text;
  };
  const auto bad_flag = []() -> int { throw UsageError("it is bad"); };
  const auto bad_file = []() -> int { throw DataError("it is bad"); };
  for (const std::function<int()>& body : {std::function<int()>(bad_flag), std::function<int()>(bad_file)}) {
    std::filesystem::remove(path);
    EXPECT_EQ(text_of("0", path, body), "trainer [rank 0]: error: it is bad\n");
    EXPECT_EQ(text_of("1", path, body), "");
    EXPECT_TRUE(std::filesystem::exists(path)) << "the launcher has it from there";
    EXPECT_EQ(text_of("1", "", body), "trainer [rank 1]: error: it is bad\n");
    EXPECT_NE(text_of("1", folder.path() / "none/error.json", body).find("[rank 1]: error: it is bad"),
              std::string::npos);
  }
}

TEST(RunProgram, UnderALauncherNamesTheRankAndWritesTheErrorFile) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "error.json";
  ASSERT_EQ(setenv("RANK", "3", 1), 0);
  ASSERT_EQ(setenv("TORCHELASTIC_ERROR_FILE", path.c_str(), 1), 0);
  const Outcome outcome = run([]() -> int { throw Error("bad \xff file"); });
  ASSERT_EQ(unsetenv("RANK"), 0);
  ASSERT_EQ(unsetenv("TORCHELASTIC_ERROR_FILE"), 0);
  EXPECT_EQ(outcome.text, "trainer [rank 3]: error: bad \xff file\n");
  std::ifstream file(path);
  const auto content = nlohmann::json::parse(file);
  EXPECT_EQ(content.at("message").at("message"), "Error: bad \\xff file");
  EXPECT_TRUE(content.at("message").at("extraInfo").contains("timestamp"));
  EXPECT_FALSE(content.at("message").at("extraInfo").contains("py_callstack"))
      << "torchrun would show it instead";
}

}  // namespace
}  // namespace lockstep
