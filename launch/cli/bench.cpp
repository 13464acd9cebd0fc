#include "cli/tool.hpp"
#include "tools/bench/bench_options.hpp"

namespace lockstep::launch {
namespace {

int measure_collectives(const Words& words, std::ostream& out, std::ostream& err) {
  return run_tool(bench::option_table(), "lockstep-bench", {}, words, out, err);
}

}  // namespace

int bench_command(const Words& words, std::ostream& out, std::ostream& err) {
  static const std::vector<Command> actions{
      {"comm", "Times collectives: lockstep bench comm --nproc-per-node 2 --collective all.",
       measure_collectives},
  };
  return run_one_of(actions, "lockstep bench", words, out, err);
}

}  // namespace lockstep::launch
