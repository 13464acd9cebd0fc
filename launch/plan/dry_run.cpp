#include "plan/dry_run.hpp"

#include <ostream>

#include "plan/binding_plan.hpp"
#include "plan/worker_environment.hpp"
#include "net/socket.hpp"

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

/// The place of this node when all nodes come and have as many ranks as this one.
Assignment expected_place(const LaunchPlan& plan) {
  Assignment place;
  place.max_restarts = plan.max_restarts;
  place.group_rank = plan.node_rank.value_or(0);
  place.group_world_size = plan.max_nodes;
  place.first_rank = place.first_role_rank = place.group_rank * plan.local_world_size;
  place.world_size = place.role_world_size = plan.max_nodes * plan.local_world_size;
  return place;
}

}  // namespace

void print_plan(const LaunchPlan& plan, const Environment& environment, std::ostream& out) {
  Attempt attempt;
  attempt.place = expected_place(plan);
  attempt.master = {plan.master_addr, plan.master_port ? *plan.master_port : net::free_port()};
  attempt.folder = plan.log_dir.empty() ? "<a temporary folder>" : plan.log_dir;
  for (int rank = 0; rank < plan.local_world_size; ++rank) {
    out << "rank " << attempt.place.first_rank + rank << ":";
    for (const auto& word : worker_command(plan, rank)) out << ' ' << shell_word(word);
    out << '\n';
    if (!plan.bindings.empty()) {
      out << "  on " << binding_text(plan.bindings[static_cast<std::size_t>(rank)]) << '\n';
    }
    for (const auto& [name, value] : worker_environment(plan, attempt, rank, environment)) {
      if (find_variable(environment, name) != value) out << "  " << name << '=' << value << '\n';
    }
  }
}

}  // namespace lockstep::launch
