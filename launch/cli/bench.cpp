#include "cli/commands.hpp"
#include "cli/tool_words.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

const Tool& benchmark() {
  static const Tool tool = {"lockstep-bench",
                            {"--collective", "--min-bytes", "--max-bytes", "--step-factor", "--dtype", "--op",
                             "--backend", "--device", "--iterations", "--warmup", "--timeout", "--json"},
                            {"--check", "--no-check"}};
  return tool;
}

}  // namespace

int bench_command(const Words& words, std::ostream& out, std::ostream& err) {
  if (words.empty() || words.front() != "comm") {
    throw UsageError("expected 'comm', as in lockstep bench comm --nproc-per-node 2 --collective all");
  }
  return run_command(tool_words(benchmark(), {}, {words.begin() + 1, words.end()}), out, err);
}

}  // namespace lockstep::launch
