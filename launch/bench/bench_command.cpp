#include "bench/bench_command.hpp"

#include <filesystem>
#include <set>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

using Words = std::vector<std::string>;

/// A program of ours, and its own options; the flags take no value.
struct Program {
  const char* name;
  std::set<std::string_view> options;
  std::set<std::string_view> flags;
};

const Program& benchmark() {
  static const Program program = {
      "lockstep-bench",
      {"--collective", "--min-bytes", "--max-bytes", "--step-factor", "--dtype", "--op", "--backend",
       "--device", "--iterations", "--warmup", "--timeout", "--json"},
      {"--check", "--no-check"}};
  return program;
}

const Program& acceptance() {
  static const Program program = {"lockstep-test", {"--device", "--timeout"}, {}};
  return program;
}

/// The program's options go to it, all others are the run's, before which `run` goes.
Words divided(const Program& program, Words run, const Words& words) {
  Words own{std::filesystem::read_symlink("/proc/self/exe").replace_filename(program.name)};
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    Words& target = program.options.contains(name) || program.flags.contains(name) ? own : run;
    target.push_back(words[i]);
    const bool value_follows = program.options.contains(words[i]) && i + 1 < words.size();
    if (value_follows) target.push_back(words[++i]);
  }
  run.insert(run.end(), own.begin(), own.end());
  return run;
}

}  // namespace

Words bench_words(const Words& words) {
  if (words.empty() || words.front() != "comm") {
    throw UsageError("bench: expected 'comm', as in lockstep bench comm --nproc-per-node 2 --collective all");
  }
  return divided(benchmark(), {}, {words.begin() + 1, words.end()});
}

Words test_words(const Words& words) { return divided(acceptance(), {"--nproc-per-node", "2"}, words); }

}  // namespace lockstep::launch
