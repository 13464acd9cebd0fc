#include <filesystem>

#include "cli/commands.hpp"
#include "slurm/script.hpp"
#include "slurm/submit.hpp"
#include "slurm/templates.hpp"

namespace lockstep::launch {
namespace {

int list_templates(const Words& words, std::ostream& out, std::ostream&) {
  struct None {};
  const OptionTable<None> table("lockstep slurm templates",
                                "Lists the templates of batch scripts, with what each is for.");
  if (!parse_or_help(table, words, out)) return 0;
  for (const auto& each : slurm_templates()) {
    // Its second line says what it is for.
    const auto start = each.text.find("\n# ") + 3;
    out << each.name << ": " << each.text.substr(start, each.text.find('\n', start) - start) << '\n';
  }
  return 0;
}

std::string script_of(const OptionTable<SlurmOptions>::Parsed& parsed) {
  return slurm_script(parsed, std::filesystem::read_symlink("/proc/self/exe"));
}

int print_script(const Words& words, std::ostream& out, std::ostream&) {
  if (const auto parsed = parse_or_help(slurm_option_table(), words, out)) out << script_of(*parsed);
  return 0;
}

int submit(const Words& words, std::ostream& out, std::ostream&) {
  const auto parsed = parse_or_help(slurm_option_table(), words, out);
  return parsed ? submit_script(script_of(*parsed), process_environment()) : 0;
}

}  // namespace

int slurm_command(const Words& words, std::ostream& out, std::ostream& err) {
  static const std::vector<Command> actions{
      {"script", "Prints a batch script for Slurm that starts a program.", print_script},
      {"submit", "Submits that script, and prints the number of the job.", submit},
      {"templates", "Lists the scripts that they start from.", list_templates},
  };
  return run_one_of(actions, "lockstep slurm", words, out, err);
}

}  // namespace lockstep::launch
