#include "cli/tool.hpp"
#include "tools/acceptance/acceptance_options.hpp"

namespace lockstep::launch {

int test_command(const Words& words, std::ostream& out, std::ostream& err) {
  return run_tool(acceptance::option_table(), "lockstep-test", {"--nproc-per-node", "2"}, words, out, err);
}

}  // namespace lockstep::launch
