// Commands that run a program of Lockstep, installed beside the launcher: as every rank of a job, or in place
// of the launcher.
#include <algorithm>
#include <optional>

#include "cli/commands.hpp"
#include "config/launch_config.hpp"
#include "process/words.hpp"
#include "process/worker_process.hpp"
#include "tools/acceptance/acceptance_options.hpp"
#include "tools/bench/bench_options.hpp"

namespace lockstep::launch {
namespace {

/// The option that a word names, as in "--json=FILE" or "--no-check"; null: none of these.
const OptionSpec* named_by(const std::vector<OptionSpec>& options, const std::string& word) {
  if (!word.starts_with("--")) return nullptr;
  std::string name = word.substr(2, word.find('=') - 2);
  std::ranges::replace(name, '_', '-');
  const auto found = std::ranges::find_if(options, [&](const OptionSpec& option) {
    return option.name == name || (option.is_switch() && "no-" + option.name == name);
  });
  return found == options.end() ? nullptr : &*found;
}

/// Splits the words of such a command: returns the program's, and appends those of the run to `run`. The
/// program's words are flags that the table has under exactly this name, with their values. Nothing if they
/// ask for help, which is then printed. Errors in them, and a program that the user names, are refused before
/// any rank starts.
template <class Options>
std::optional<Words> own_words(const OptionTable<Options>& table, const Words& words, Words& run,
                               std::ostream& out) {
  const std::vector<OptionSpec>& options = table.specs();
  Words own;
  for (auto word = words.begin(); word != words.end(); ++word) {
    const OptionSpec* option = named_by(options, *word);
    (option != nullptr || *word == "-h" ? own : run).push_back(*word);
    const bool needs_value =
        option != nullptr && !option->is_switch() && word->find('=') == std::string::npos;
    if (needs_value && word + 1 != words.end()) own.push_back(*++word);
  }
  if (!parse_or_help(table, own, out)) {
    out << "\nAll other options are those of lockstep run, as in --nproc-per-node 4.\n";
    return std::nullopt;
  }
  auto run_table = run_option_table();
  run_table.grammar({.unique_prefixes = true, .environment_prefix = "PET_"});
  const Words strays = run_table.parse(run, process_environment()).options.program;
  if (strays.empty()) return own;
  throw formatted<UsageError>("unexpected argument '{}': this command runs a program of its own. See --help.",
                              strays.front());
}

/// Runs the program of the table by `lockstep run`; `run` is put before the run's words.
template <class Options>
int run_tool(const OptionTable<Options>& table, const std::string& program, Words run, const Words& words,
             std::ostream& out, std::ostream& err) {
  const auto own = own_words(table, words, run, out);
  if (!own) return 0;
  run.push_back(program_of_lockstep(program));
  run.insert(run.end(), own->begin(), own->end());
  return run_command(run, out, err);
}

int bench_comm(const Words& words, std::ostream& out, std::ostream& err) {
  return run_tool(bench::option_table(), "lockstep-bench", {}, words, out, err);
}

}  // namespace

int bench_command(const Words& words, std::ostream& out, std::ostream& err) {
  static const std::vector<Command> actions{
      {"comm", "Times collectives: lockstep bench comm --nproc-per-node 2 --collective all.", bench_comm},
  };
  return run_one_of(actions, "lockstep bench", words, out, err);
}

int check_command(const Words& words, std::ostream& out, std::ostream& err) {
  struct NoOptions {};
  const OptionTable<NoOptions> table("lockstep check",
                                     "Checks the nodes of a job: whether all ranks reach each other and "
                                     "compute correct results, and how fast "
                                     "each link is.");
  Words run{"--check"};
  return own_words(table, words, run, out) ? run_command(run, out, err) : 0;
}

int test_command(const Words& words, std::ostream& out, std::ostream& err) {
  return run_tool(acceptance::option_table(), "lockstep-test", {"--nproc-per-node", "2"}, words, out, err);
}

int tokenizer_command(const Words& words, std::ostream&, std::ostream&) {
  Words command{program_of_lockstep("lockstep-tokenizer")};
  command.insert(command.end(), words.begin(), words.end());
  replace_process(command, process_environment());
}

}  // namespace lockstep::launch
