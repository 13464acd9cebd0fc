// Prints who this process is in its job as one line of JSON, for slurm_test.py to hold against what Slurm
// says.
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/cluster/scheduler_info.hpp"
#include "core/process_identity.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/core/world.hpp"

namespace {

int print_world() {
  const auto environment = lockstep::process_environment();
  const auto world = lockstep::World::from_environment(environment);
  const nlohmann::json line{{"host", lockstep::this_process().host},
                            {"slurm_rank", lockstep::find_variable(environment, "SLURM_PROCID").value_or("")},
                            {"rank", world.rank},
                            {"world_size", world.world_size},
                            {"local_rank", world.local_rank},
                            {"local_world_size", world.local_world_size},
                            {"local_main_rank", world.local_main_rank()},
                            {"group_rank", world.group_rank},
                            {"group_world_size", world.group_world_size},
                            {"master_addr", world.master_addr},
                            {"master_port", world.master_port},
                            {"own_devices", world.own_devices},
                            {"restart_count", world.restart_count},
                            {"run_id", world.run_id},
                            {"warning", lockstep::lonely_process_warning(environment).value_or("")}};
  std::cout << line.dump() + "\n" << std::flush;
  return 0;
}

}  // namespace

int main() { return lockstep::run_program("world_peer", print_world); }
