#include "agent/stack_dump.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>

#include "agent/stack_tool.hpp"
#include "failure/readable_stack.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "process/process_facts.hpp"
#include "process/worker_process.hpp"

namespace lockstep::launch {
namespace {

constexpr std::chrono::seconds kPatience{10};
/// SIGTERM lets a debugger leave the process that it has stopped.
constexpr std::chrono::seconds kGrace{1};
constexpr std::chrono::milliseconds kLookInterval{10};
/// More than this is no stack.
constexpr std::streamsize kLongest = 1 << 20;

std::string content(const std::string& path) {
  // Not to hang on what a rank may have put there.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  std::string text(file < 0 ? 0 : static_cast<std::size_t>(kLongest), '\0');
  std::size_t length = 0;
  for (ssize_t count = 1; file >= 0 && count > 0 && length < text.size();
       length += static_cast<std::size_t>(count)) {
    count = std::max<ssize_t>(read(file, text.data() + length, text.size() - length), 0);
  }
  if (file >= 0) close(file);
  text.resize(length);
  return text;
}

/// Whether the file ends as one that its rank has written to the end.
bool is_complete(const std::string& path) {
  const std::string_view end = kEndOfStacks;
  std::string tail(end.size(), '\0');
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  const bool read_all = lseek(file, -static_cast<off_t>(tail.size()), SEEK_END) >= 0 &&
                        read(file, tail.data(), tail.size()) == static_cast<ssize_t>(tail.size());
  close(file);
  return read_all && tail == end;
}

std::string indented(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += "  " + line + "\n";
  return result;
}

}  // namespace

/// One rank that has been asked.
class StackDump::Request {
 public:
  Request(const StackTarget& target, const Environment& environment)
      : target_(target), file_(stacks_file(target.heartbeat_file)) {
    unlink(file_.c_str());
    if (!ask_the_rank()) ask_a_tool(environment);
  }

  bool is_answered() {
    if (asked_ == Asked::rank) return is_complete(file_) || has_ended() || is_stopped(rank_pid_);
    return !tool_ || tool_->has_ended();
  }

  bool has_tool() const { return tool_ != nullptr; }
  void end_tool() {
    if (tool_) tool_->ask_to_end();
  }

  RankStacks result() {
    tool_.reset();
    std::string text = content(file_);
    unlink(file_.c_str());
    if (asked_ == Asked::rank && !text.ends_with(kEndOfStacks)) {
      text += has_ended()
                  ? "the rank has ended\n"
                  : "the rank does not answer; by what the kernel tells:\n" + threads_in_kernel(target_.pid);
    }
    if (text.empty()) {
      text = std::string(asked_ == Asked::tool ? "the debugger has told nothing"
                                               : "no debugger is installed (eu-stack, gdb, py-spy)") +
             "; by what the kernel tells:\n" + threads_in_kernel(target_.pid);
    }
    if (text.ends_with(kEndOfStacks)) text.resize(text.size() - std::string(kEndOfStacks).size());
    return {target_.rank, target_.pid, readable_stack(text)};
  }

 private:
  enum class Asked { nobody, rank, tool };

  /// It is a child of the launcher, which has taken note of its end.
  bool has_ended() const { return kill(target_.pid, 0) != 0 && errno == ESRCH; }

  /// The rank may be a child of what the launcher started (a shell); it is never a process outside of that
  /// group.
  bool ask_the_rank() {
    const auto record = read_heartbeat(target_.heartbeat_file);
    if (!record || record->stack_signal < SIGRTMIN || record->stack_signal > SIGRTMAX) return false;
    if (getpgid(record->pid) != target_.pid || !handles_signal(record->pid, record->stack_signal))
      return false;
    if (kill(record->pid, record->stack_signal) != 0) return false;
    asked_ = Asked::rank;
    rank_pid_ = record->pid;
    return true;
  }

  void ask_a_tool(const Environment& environment) {
    const auto command =
        StackTool::command_for(target_.pid, find_variable(environment, "PATH").value_or("/usr/bin:/bin"));
    if (!command) return;
    try {
      tool_ = std::make_unique<StackTool>(*command, environment, file_);
      asked_ = Asked::tool;
    } catch (const Error&) {
      // Then the kernel is asked.
    }
  }

  StackTarget target_;
  std::string file_;
  Asked asked_ = Asked::nobody;
  pid_t rank_pid_ = 0;
  std::unique_ptr<StackTool> tool_;
};

StackDump::StackDump(const std::vector<StackTarget>& targets, const Environment& environment, Time now)
    : next_look_(now + kLookInterval), ask_deadline_(now + kPatience), grace_end_(ask_deadline_ + kGrace) {
  for (const auto& target : targets) requests_.push_back(std::make_unique<Request>(target, environment));
}

StackDump::~StackDump() = default;

bool StackDump::work(Time now) {
  next_look_ = now + kLookInterval;
  const auto answered = [](const auto& request) { return request->is_answered(); };
  if (std::all_of(requests_.begin(), requests_.end(), answered) || now >= grace_end_) return true;
  if (now < ask_deadline_ || std::exchange(told_to_end_, true)) return false;
  for (const auto& request : requests_) request->end_tool();
  // Ranks have no grace: only debuggers are awaited.
  return std::none_of(requests_.begin(), requests_.end(),
                      [](const auto& request) { return request->has_tool(); });
}

std::vector<RankStacks> StackDump::take() {
  std::vector<RankStacks> result;
  for (const auto& request : requests_) result.push_back(request->result());
  return result;
}

std::string stacks_report(const std::vector<RankStacks>& stacks) {
  std::string text;
  for (const auto& rank : stacks) {
    text += fmt::format("lockstep run: stacks of rank {} (pid {}):\n{}", rank.rank, rank.pid,
                        indented(rank.text));
  }
  return text;
}

void StackRequests::ask(const std::vector<StackTarget>& targets, const Environment& environment,
                        std::optional<std::int64_t> node, Time now) {
  if (!dump_) dump_.emplace(targets, environment, now);
  if (node) {
    answer_.nodes.insert(*node);
  } else {
    answer_.here = true;
  }
}

StackRequests::Time StackRequests::deadline() const { return dump_ ? dump_->next_look() : Time::max(); }

std::optional<StackRequests::Answer> StackRequests::work(Time now) {
  if (!dump_ || now < dump_->next_look() || !dump_->work(now)) return std::nullopt;
  return finish();
}

std::optional<StackRequests::Answer> StackRequests::finish() {
  if (!dump_) return std::nullopt;
  answer_.text = stacks_report(dump_->take());
  dump_.reset();
  return std::exchange(answer_, {});
}

}  // namespace lockstep::launch
