#include "plan/dry_run.hpp"

#include <ostream>

#include "plan/shell_word.hpp"
#include "plan/worker_environment.hpp"
#include "process/ports.hpp"

namespace lockstep::launch {
void print_plan(const LaunchPlan& plan, const Environment& environment, std::ostream& out) {
  Attempt attempt;
  attempt.master_port = plan.master_port ? *plan.master_port : free_port();
  attempt.folder = plan.log_dir.empty() ? "<a temporary folder>" : plan.log_dir;
  for (int rank = 0; rank < plan.local_world_size; ++rank) {
    out << "rank " << rank << ":";
    for (const auto& word : worker_command(plan, rank)) out << ' ' << shell_word(word);
    out << '\n';
    for (const auto& [name, value] : worker_environment(plan, attempt, rank, environment)) {
      if (find_variable(environment, name) != value) out << "  " << name << '=' << value << '\n';
    }
  }
}

}  // namespace lockstep::launch
