#include "agent/dry_run.hpp"

#include <ostream>

#include "agent/worker_spec.hpp"
#include "config/devices.hpp"
#include "net/socket.hpp"
#include "process/command_words.hpp"

namespace lockstep::launch {
namespace {

/// The place of this node when all nodes come and have as many ranks as this one.
Assignment expected_place(const LaunchConfig& config) {
  Assignment place;
  place.max_restarts = config.max_restarts;
  place.group_rank = config.node_rank.value_or(0);
  place.group_world_size = config.max_nodes;
  place.first_rank = place.first_role_rank = place.group_rank * config.local_world_size;
  place.world_size = place.role_world_size = config.max_nodes * config.local_world_size;
  return place;
}

}  // namespace

void print_config(const LaunchConfig& config, const Environment& environment, std::ostream& out) {
  WorkerSpec spec;
  spec.place = expected_place(config);
  spec.master = {config.endpoint.host, config.endpoint.port != 0 ? config.endpoint.port : net::free_port()};
  spec.folder = config.log_dir.empty() ? "<a temporary folder>" : config.log_dir;
  for (int rank = 0; rank < config.local_world_size; ++rank) {
    out << "rank " << spec.place.first_rank + rank << ":";
    for (const auto& word : worker_command(config, rank)) out << ' ' << shell_word(word);
    out << '\n';
    if (!config.bindings.empty()) {
      out << "  on " << binding_text(config.bindings[static_cast<std::size_t>(rank)]) << '\n';
    }
    for (const auto& [name, value] : worker_environment(config, spec, rank, environment)) {
      if (find_variable(environment, name) != value) out << "  " << name << '=' << value << '\n';
    }
  }
}

}  // namespace lockstep::launch
