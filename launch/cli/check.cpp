#include "cli/commands.hpp"

namespace lockstep::launch {

int check_command(const Words& words, std::ostream& out, std::ostream& err) {
  Words run{"--check"};
  run.insert(run.end(), words.begin(), words.end());
  return run_command(run, out, err);
}

}  // namespace lockstep::launch
