#include <filesystem>
#include <ostream>

#include "cli/commands.hpp"
#include "slurm/script.hpp"
#include "slurm/submit.hpp"
#include "slurm/templates.hpp"

namespace lockstep::launch {
namespace {

constexpr int kUsageStatus = 2;

constexpr const char* kUsage =
    "usage: lockstep slurm script [options] [--] program ...\n"
    "       lockstep slurm submit [options] [--] program ...\n"
    "       lockstep slurm templates\n\n"
    "script prints a batch script for Slurm, submit submits it and prints the number of the job; both take "
    "the same\n"
    "options, see lockstep slurm script --help. templates lists the scripts that they start from.\n";

void list_templates(std::ostream& out) {
  for (const auto& each : slurm_templates()) {
    // Its second line says what it is for.
    const auto start = each.text.find("\n# ") + 3;
    out << each.name << ": " << each.text.substr(start, each.text.find('\n', start) - start) << '\n';
  }
}

int make_script(const Words& words, bool submit, std::ostream& out) {
  const auto parsed = slurm_option_table().parse(words);
  if (parsed.help) {
    out << slurm_option_table().help();
    return 0;
  }
  const std::string script = slurm_script(parsed, std::filesystem::read_symlink("/proc/self/exe"));
  if (submit) return submit_script(script, process_environment());
  out << script;
  return 0;
}

}  // namespace

int slurm_command(const Words& words, std::ostream& out, std::ostream& err) {
  const std::string command = words.empty() ? "" : words.front();
  if (command == "script" || command == "submit")
    return make_script({words.begin() + 1, words.end()}, command == "submit", out);
  if (command == "templates" && words.size() == 1) {
    list_templates(out);
    return 0;
  }
  const bool help = command == "--help" || command == "-h" || command == "help";
  (help ? out : err) << kUsage;
  return help ? 0 : kUsageStatus;
}

}  // namespace lockstep::launch
