#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/launch_plan.hpp"
#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// One start of the whole group of ranks.
struct Attempt {
  /// 0 at first, one more after each restart.
  int restart_count = 0;
  std::uint16_t master_port = 0;
  /// A private folder for the ranks' error files.
  std::string folder;
};

/// Where a rank writes why it failed (torchrun's JSON): `<folder>/attempt_<n>/<local rank>/error.json`.
std::string error_file(const Attempt& attempt, int local_rank);

/// The environment of one rank: `parent` and torchrun's contract over it
/// (docs.pytorch.org/docs/stable/elastic/run.html, "Environment Variables"). TORCHELASTIC_USE_AGENT_STORE is
/// False: rank 0 hosts the store. *Local*.
Environment worker_environment(const LaunchPlan& plan, const Attempt& attempt, int local_rank,
                               const Environment& parent);

/// The words to execute for one rank. `${local_rank}` and `$local_rank` in the program's arguments become the
/// number. Unlike torchrun, `$$` stays two signs: `sh -c 'echo $$'` means what it says.
std::vector<std::string> worker_command(const LaunchPlan& plan, int local_rank);

/// One line for the person who left OMP_NUM_THREADS unset, or an empty text.
std::string thread_notice(const LaunchPlan& plan, const Environment& parent);

}  // namespace lockstep::launch
