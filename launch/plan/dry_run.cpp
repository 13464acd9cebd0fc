#include "plan/dry_run.hpp"

#include <ostream>

#include "net/socket.hpp"
#include "plan/worker_environment.hpp"

namespace lockstep::launch {
namespace {

/// A word as a shell would take it.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string result = "'";
  for (const char letter : word) result += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return result + "'";
}

}  // namespace

void print_plan(const LaunchPlan& plan, const Environment& environment, std::ostream& out) {
  Attempt attempt;
  attempt.master_port = plan.master_port ? *plan.master_port : net::free_port();
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
