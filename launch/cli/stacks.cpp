#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/commands.hpp"
#include "core/runtime/process_handle.hpp"
#include "lockstep/core/error.hpp"
#include "process/process_facts.hpp"
#include "process/process_supervisor.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

struct StacksOptions {
  int process = 0;
};

OptionTable<StacksOptions> stacks_options() {
  return OptionTable<StacksOptions>("lockstep stacks",
                                    "Makes a running 'lockstep run' print, on its own standard error, the "
                                    "stacks of all threads of the job's ranks, on all nodes.")
      .argument("PID", &StacksOptions::process,
                "The process id of the running 'lockstep run', which its messages name.", at_least(1));
}

void check_is_launcher(pid_t process) {
  if (!is_ours(process))
    throw formatted<UsageError>("process {}: no process of this user has that number.", process);
  if (blocks_signal(process, stacks_request()) && program_of(process).ends_with("lockstep")) return;
  throw formatted<UsageError>(
      "process {}: that process is no 'lockstep run' (it is '{}'). Expected the launcher, not one of its "
      "ranks: its process id is the parent's of the ranks.",
      process, program_of(process));
}

}  // namespace

int stacks_command(const Words& words, std::ostream& out, std::ostream&) {
  const auto parsed = parse_or_help(stacks_options(), words, out);
  if (!parsed) return 0;
  const pid_t process = parsed->options.process;
  // Held, so that the process that is looked at is the one that gets the signal.
  const ProcessHandle handle(process);
  check_is_launcher(process);
  if (!handle.signal(stacks_request())) {
    throw formatted<Error>("process {}: the launcher cannot be asked: {}.", process, std::strerror(errno));
  }
  out << "asked; the stacks are on the standard error of process " << process << '\n';
  return 0;
}

}  // namespace lockstep::launch
