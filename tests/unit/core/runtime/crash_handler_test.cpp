#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/runtime/heartbeat_file.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

/// A process of crash_program with its error file and its heartbeat in a folder.
class CrashProgram {
 public:
  explicit CrashProgram(const std::string& how) {
    make_heartbeat_file(heartbeat());
    pid_ = fork();
    if (pid_ != 0) return;
    setenv("TORCHELASTIC_ERROR_FILE", error_file().c_str(), 1);
    setenv("LOCKSTEP_HEARTBEAT_FILE", heartbeat().c_str(), 1);
    setenv("RANK", "2", 1);
    const int nothing = open("/dev/null", O_WRONLY);
    dup2(nothing, STDERR_FILENO);
    execl(LOCKSTEP_CRASH_PROGRAM, "crash", how.c_str(), nullptr);
    _exit(99);
  }
  ~CrashProgram() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  CrashProgram(const CrashProgram&) = delete;
  CrashProgram& operator=(const CrashProgram&) = delete;

  std::string error_file() const { return folder_.path() / "error.json"; }
  std::string heartbeat() const { return folder_.path() / "heartbeat"; }
  pid_t pid() const { return pid_; }

  /// waitpid's status.
  int wait() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = 0;
    return status;
  }

  nlohmann::json error() const {
    std::ifstream file(error_file());
    return nlohmann::json::parse(file).at("message");
  }

 private:
  testing::TemporaryFolder folder_;
  pid_t pid_ = 0;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Death {
  const char* how;
  int signal;
  const char* message;
  const char* frame;
};

class CrashHandler : public ::testing::TestWithParam<Death> {};
INSTANTIATE_TEST_SUITE_P(
    Of, CrashHandler,
    ::testing::Values(
        Death{"segv", SIGSEGV, "SIGSEGV (Segmentation fault) at address 0x0 in thread crash",
              "write_to_nowhere"},
        Death{"segv_in_thread", SIGSEGV, "SIGSEGV (Segmentation fault) at address 0x0", "write_to_nowhere"},
        Death{"overflow", SIGSEGV, "SIGSEGV (Segmentation fault) at address 0x", "recurse_without_end"},
        Death{"overflow_in_library_thread", SIGSEGV, "SIGSEGV (Segmentation fault) at address 0x",
              "recurse_without_end"},
        Death{"segv_in_library_thread", SIGSEGV, "SIGSEGV (Segmentation fault) at address 0x0",
              "write_to_nowhere"},
        Death{"abort", SIGABRT, "SIGABRT (Aborted) in thread crash", "run"},
        Death{"terminate", SIGABRT, "because of std::runtime_error: a \"quoted\" word\nand a line",
              "throw_in_a_thread"},
        Death{"raise_fpe", SIGFPE, "SIGFPE", "run"}),
    [](const auto& test) { return std::string(test.param.how); });

TEST_P(CrashHandler, AreWrittenBeforeTheProcessDiesByItsSignal) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer reports such signals itself and exits";
#endif
  CrashProgram program(GetParam().how);
  const int status = program.wait();
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), GetParam().signal);
  const auto error = program.error();
  const std::string message = error.at("message");
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
  const std::string stack = error.at("extraInfo").at("py_callstack");
  EXPECT_TRUE(stack.starts_with(message)) << stack;
  EXPECT_NE(stack.find(GetParam().frame), std::string::npos) << stack;
  EXPECT_EQ(stack.find("on_fault"), std::string::npos) << stack;
  EXPECT_GT(std::stoll(error.at("extraInfo").at("timestamp").get<std::string>()), 0);
}

/// So that the launcher looks for the cause at another rank.
TEST(CrashHandlerOfAnException, TellWhetherAnotherRankIsTheCause) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer reports such signals itself and exits";
#endif
  for (const bool is_lost : {false, true}) {
    CrashProgram program(is_lost ? "watchdog" : "terminate");
    EXPECT_EQ(WTERMSIG(program.wait()), SIGABRT);
    EXPECT_EQ(program.error().at("extraInfo").value("is_secondary", false), is_lost);
  }
}

TEST(CrashHandlerOfAnException, NameTheRank) {
  CrashProgram program("throw");
  EXPECT_EQ(WEXITSTATUS(program.wait()), 1);
  EXPECT_EQ(program.error().at("message"), "DataError: no label");
  EXPECT_EQ(program.error().at("extraInfo").at("rank"), "2");
}

/// Until the process waits in its sleep.
HeartbeatRecord asleep(const CrashProgram& program) {
  for (int i = 0; i < 6000; ++i) {
    const auto record = read_heartbeat(program.heartbeat());
    if (record && record->what == "sleep") return *record;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "no heartbeat came";
  return {};
}

std::string stacks_of(const CrashProgram& program, int signal) {
  EXPECT_EQ(kill(program.pid(), signal), 0);
  const std::string path = stacks_file(program.heartbeat());
  for (int i = 0; i < 6000; ++i) {
    const std::string text = text_of(path);
    if (text.ends_with(kEndOfStacks)) return text;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "no stacks came: " << text_of(path);
  return "";
}

TEST(Stacks, OfAllThreadsAreWrittenOnASignal) {
  const CrashProgram program("sleep");
  const auto record = asleep(program);
  ASSERT_GT(record.stack_signal, SIGRTMIN);
  for (int round = 0; round < 2; ++round) {
    const std::string text = stacks_of(program, record.stack_signal);
    EXPECT_NE(text.find("sleep_in_main"), std::string::npos) << text;
    EXPECT_NE(text.find("sleep_in_a_thread"), std::string::npos) << text;
    EXPECT_NE(text.find("it did not answer: it blocks the signal"), std::string::npos) << text;
    EXPECT_EQ(text.find("on_stack_signal"), std::string::npos) << text;
    ASSERT_EQ(unlink(stacks_file(program.heartbeat()).c_str()), 0);
  }
  EXPECT_EQ(waitpid(program.pid(), nullptr, WNOHANG), 0) << "it goes on";
}

TEST(Stacks, AStormOfSignalsDoesNoHarm) {
  const CrashProgram program("sleep");
  const auto record = asleep(program);
  for (int i = 0; i < 300; ++i) kill(program.pid(), record.stack_signal);
  EXPECT_NE(stacks_of(program, record.stack_signal).find("sleep_in_main"), std::string::npos);
  EXPECT_EQ(waitpid(program.pid(), nullptr, WNOHANG), 0);
}

}  // namespace
}  // namespace lockstep
