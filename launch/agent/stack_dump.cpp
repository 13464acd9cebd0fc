#include "agent/stack_dump.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <utility>

#include "core/runtime/heartbeat_file.hpp"
#include "core/runtime/process_handle.hpp"
#include "core/text.hpp"
#include "lockstep/core/error.hpp"
#include "process/process_facts.hpp"
#include "process/words.hpp"
#include "process/worker_process.hpp"

namespace lockstep::launch {
namespace {

constexpr std::chrono::seconds kAnswerTimeout{10};
/// On SIGTERM, a debugger detaches from the process that it has stopped.
constexpr std::chrono::seconds kDebuggerShutdownTimeout{1};
constexpr std::chrono::milliseconds kLookInterval{10};
/// The last bytes of a rank's stacks that are printed.
constexpr std::size_t kLongestStack = 1 << 20;

bool runs_python(pid_t process) {
  const std::string program = program_of(process);
  return program.substr(program.rfind('/') + 1).starts_with("python");
}

/// Runs in the child that becomes a debugger: resets the launcher's signal mask and SIGPIPE, and opens the
/// streams.
void prepare_debugger(const std::string& output_file) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  const int output = open(output_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (output < 0 || dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0) _exit(1);
  if (input < 0 || dup2(input, STDIN_FILENO) < 0) _exit(1);
}

}  // namespace

std::optional<std::vector<std::string>> debugger_for(pid_t process, const std::string& search_path) {
  using Words = std::vector<std::string>;
  const std::string pid = std::to_string(process);
  const auto installed = [&](const char* name) { return find_program(name, search_path); };
  if (const auto path = installed("py-spy"); !path.empty() && runs_python(process))
    return Words{path, "dump", "--pid", pid};
  if (const auto path = installed("eu-stack"); !path.empty()) return Words{path, "-p", pid};
  if (const auto path = installed("gdb"); !path.empty())
    return Words{path, "-nx", "-batch", "-p", pid, "-ex", "thread apply all backtrace"};
  return std::nullopt;
}

/// One rank that was asked.
class StackDump::Request {
 public:
  Request(StackTarget target, const Environment& environment)
      : target_(std::move(target)), file_(stacks_file(target_.heartbeat_file)) {
    unlink(file_.c_str());
    if (!ask_the_rank()) ask_a_debugger(environment);
  }
  /// Does not wait for the debugger; it is reaped with the other children.
  ~Request() {
    // On SIGTERM it detaches from the rank; if the rank has ended, there is nothing to detach from.
    if (debugger_runs()) kill(debugger_, told_to_end_ || has_ended() ? SIGKILL : SIGTERM);
    unlink(file_.c_str());
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  bool is_answered() {
    if (rank_pid_ == 0) return !debugger_runs();
    // A stopped process (SIGSTOP) handles no signals until SIGCONT.
    return read_end(file_, std::string_view(kEndOfStacks).size()) == kEndOfStacks || has_ended() ||
           process_stat(rank_pid_).state == 'T';
  }

  /// Sends SIGTERM to the debugger, once. False if none is running.
  bool end_debugger() {
    if (!debugger_runs()) return false;
    if (!std::exchange(told_to_end_, true)) kill(debugger_, SIGTERM);
    return true;
  }

  /// The stacks so far, as the launcher prints them.
  std::string text() const {
    std::string stacks = read_end(file_, kLongestStack).value_or("");
    if (stacks.ends_with(kEndOfStacks)) {
      stacks.resize(stacks.size() - std::string_view(kEndOfStacks).size());
    } else if (rank_pid_ != 0 && has_ended()) {
      stacks += "the rank has ended\n";
    } else if (rank_pid_ != 0 || stacks.empty()) {
      stacks += std::string(why_none()) + "; from the kernel:\n" + threads_in_kernel(target_.pid);
    }
    return fmt::format("lockstep run: stacks of rank {} (pid {}):\n{}", target_.rank, target_.pid,
                       indent_lines(readable_stack(stacks)));
  }

 private:
  const char* why_none() const {
    if (rank_pid_ != 0) return "the rank does not answer";
    return asked_debugger_ ? "the debugger printed nothing"
                           : "no debugger is installed (eu-stack, gdb, py-spy)";
  }

  /// It is a child of the launcher, which has reaped it.
  bool has_ended() const { return kill(target_.pid, 0) != 0 && errno == ESRCH; }

  bool debugger_runs() {
    if (debugger_ != 0 && waitpid(debugger_, nullptr, WNOHANG) != 0) debugger_ = 0;
    return debugger_ != 0;
  }

  /// The rank may be a child of the process that the launcher started (a shell), but is always in its process
  /// group.
  bool ask_the_rank() {
    const auto record = read_heartbeat(target_.heartbeat_file);
    if (!record || record->stack_signal < SIGRTMIN || record->stack_signal > SIGRTMAX) return false;
    if (getpgid(record->pid) != target_.pid || !SignalMasks(record->pid).handles(record->stack_signal))
      return false;
    if (kill(record->pid, record->stack_signal) != 0) return false;
    rank_pid_ = record->pid;
    return true;
  }

  void ask_a_debugger(Environment environment) {
    const auto command =
        debugger_for(target_.pid, find_variable(environment, "PATH").value_or("/usr/bin:/bin"));
    if (!command) return;
    // Debuggers would query servers for missing debug information.
    environment.erase("DEBUGINFOD_URLS");
    try {
      // Its output shows whether it started: nothing waits for a file system that hangs.
      debugger_ = SpawnedProcess(*command, environment, [this] { prepare_debugger(file_); }).pid();
      asked_debugger_ = true;
    } catch (const Error&) {
      // The kernel is asked instead.
    }
  }

  StackTarget target_;
  std::string file_;
  /// The process that was asked to write its stacks; 0: none.
  pid_t rank_pid_ = 0;
  /// 0: not running.
  pid_t debugger_ = 0;
  bool asked_debugger_ = false;
  bool told_to_end_ = false;
};

StackDump::StackDump() = default;
StackDump::~StackDump() = default;

void StackDump::ask(const std::vector<StackTarget>& targets, const Environment& environment,
                    std::optional<std::int64_t> node, Time now) {
  if (!begun_) {
    begun_ = now;
    next_look_ = now + kLookInterval;
    for (const auto& target : targets) requests_.push_back(std::make_unique<Request>(target, environment));
  }
  if (node) {
    answer_.nodes.insert(*node);
  } else {
    answer_.here = true;
  }
}

std::optional<StackDump::Answer> StackDump::work(Time now) {
  if (!begun_) return std::nullopt;
  next_look_ = now + kLookInterval;
  const auto over = *begun_ + kAnswerTimeout;
  const bool answered = std::ranges::all_of(requests_, &Request::is_answered);
  if (answered || now >= over + kDebuggerShutdownTimeout) return finish();
  if (now < over) return std::nullopt;
  // After that, only debuggers are awaited.
  return std::ranges::count_if(requests_, &Request::end_debugger) > 0 ? std::nullopt : finish();
}

std::optional<StackDump::Answer> StackDump::finish() {
  if (!begun_) return std::nullopt;
  for (const auto& request : requests_) answer_.text += request->text();
  requests_.clear();
  begun_.reset();
  return std::exchange(answer_, {});
}

}  // namespace lockstep::launch
