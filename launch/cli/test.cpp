#include "cli/commands.hpp"
#include "cli/tool_words.hpp"

namespace lockstep::launch {

int test_command(const Words& words, std::ostream& out, std::ostream& err) {
  static const Tool tool = {"lockstep-test", {"--device", "--timeout"}, {}};
  return run_command(tool_words(tool, {"--nproc-per-node", "2"}, words), out, err);
}

}  // namespace lockstep::launch
