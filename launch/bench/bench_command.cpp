#include "bench/bench_command.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

constexpr const char* kProgram = "lockstep-bench";

/// The benchmark's own options; `check` takes no value.
constexpr std::string_view kOptions[] = {"--collective", "--min-bytes", "--max-bytes", "--step-factor",
                                         "--dtype",      "--op",        "--backend",   "--device",
                                         "--iterations", "--warmup",    "--timeout",   "--json"};
constexpr std::string_view kFlags[] = {"--check", "--no-check"};

bool is_one_of(std::string_view word, auto& all) {
  return std::find(std::begin(all), std::end(all), word) != std::end(all);
}

}  // namespace

std::vector<std::string> bench_words(const std::vector<std::string>& words) {
  if (words.empty() || words.front() != "comm") {
    throw UsageError("bench: expected 'comm', as in lockstep bench comm --nproc-per-node 2 --collective all");
  }
  std::vector<std::string> run;
  std::vector<std::string> program{
      std::filesystem::read_symlink("/proc/self/exe").replace_filename(kProgram)};
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    const bool own = is_one_of(name, kOptions) || is_one_of(name, kFlags);
    auto& target = own ? program : run;
    target.push_back(words[i]);
    const bool value_follows = is_one_of(words[i], kOptions) && i + 1 < words.size();
    if (value_follows) target.push_back(words[++i]);
  }
  run.insert(run.end(), program.begin(), program.end());
  return run;
}

}  // namespace lockstep::launch
