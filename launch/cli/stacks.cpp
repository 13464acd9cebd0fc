#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <ostream>

#include "cli/commands.hpp"
#include "core/runtime/process_handle.hpp"
#include "lockstep/core/error.hpp"
#include "process/process_facts.hpp"
#include "process/signal_fd.hpp"

namespace lockstep::launch {
namespace {

constexpr const char* kUsage =
    "usage: lockstep stacks PID\n\n"
    "Makes a running 'lockstep run' print, on its own standard error, the stacks of all threads of the "
    "job's\n"
    "ranks, on all nodes. PID is its process id, which its messages name.\n";

pid_t process_in(const std::string& word) {
  pid_t process = 0;
  const auto [stop, failure] = std::from_chars(word.data(), word.data() + word.size(), process);
  if (failure == std::errc() && stop == word.data() + word.size() && process > 0) return process;
  throw UsageError("'" + word + "': expected the process id of a running 'lockstep run'.");
}

void check_is_launcher(pid_t process) {
  const std::string number = std::to_string(process);
  if (!is_ours(process)) throw UsageError("process " + number + ": no process of this user has that number.");
  if (blocks_signal(process, stacks_request()) && program_of(process).ends_with("lockstep")) return;
  throw UsageError(
      "process " + number + ": that process is no 'lockstep run' (it is '" + program_of(process) +
      "'). Expected the launcher, not one of its ranks: its process id is the parent's of the ranks.");
}

}  // namespace

int stacks_command(const Words& words, std::ostream& out, std::ostream&) {
  if (words.size() == 1 && (words[0] == "--help" || words[0] == "-h")) {
    out << kUsage;
    return 0;
  }
  if (words.size() != 1) throw UsageError("expected one process id. " + std::string(kUsage));
  const pid_t process = process_in(words[0]);
  // Held, so that the process that is looked at is the one that gets the signal.
  const ProcessHandle handle(process);
  check_is_launcher(process);
  if (!handle.signal(stacks_request())) {
    throw Error("process " + words[0] + ": the launcher cannot be asked: " + std::strerror(errno) + ".");
  }
  out << "asked; the stacks are on the standard error of process " << process << '\n';
  return 0;
}

}  // namespace lockstep::launch
