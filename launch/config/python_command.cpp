#include "config/python_command.hpp"

#include <filesystem>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

/// What torchrun's --run-path does in a process of its own: the script under runpy, inside of @record where
/// torch is there.
constexpr const char* kRunPath =
    "import runpy, sys\n"
    "sys.argv = sys.argv[1:]\n"
    "def main():\n"
    "    runpy.run_path(sys.argv[0], run_name='__main__')\n"
    "try:\n"
    "    from torch.distributed.elastic.multiprocessing.errors import record\n"
    "except ImportError:\n"
    "    record = lambda function: function\n"
    "record(main)()\n";

bool is_python_script(const std::string& name) { return name.size() > 3 && name.ends_with(".py"); }

std::vector<std::string> interpreter(const RunOptions& options, const Environment& environment) {
  const std::string python = find_variable(environment, "PYTHON_EXEC").value_or("python3");
  if (options.run_path) return {python, "-u", "-c", kRunPath};
  if (options.module) return {python, "-u", "-m"};
  if (is_python_script(options.program.front()) && !options.no_python) return {python, "-u"};
  return {};
}

Command check_command(const RunOptions& options) {
  if (!options.program.empty()) {
    throw UsageError("--check runs a program of its own: drop '" + options.program.front() +
                     "', or --check.");
  }
  const std::string name = "lockstep-check";
  return {name, {std::filesystem::read_symlink("/proc/self/exe").replace_filename(name)}};
}

}  // namespace

Command command_of(const RunOptions& options, const Environment& environment) {
  if (options.check) return check_command(options);
  if (options.program.empty()) {
    throw UsageError("the program ... is missing: expected lockstep run [options] program .... See --help.");
  }
  if (options.module && options.no_python && !options.run_path) {
    throw UsageError("--module and --no-python contradict each other: a module is run by Python. Drop one.");
  }
  if (options.program.front().empty()) {
    throw UsageError("the program's name is empty: expected a path or a command.");
  }
  Command command{options.program.front(), interpreter(options, environment)};
  if (!command.words.empty() && (options.run_path || !options.module)) command.script = command.program;
  command.first_argument = command.words.size() + 1;
  command.words.insert(command.words.end(), options.program.begin(), options.program.end());
  if (!options.use_env) {
    command.words.insert(command.words.begin() + static_cast<std::ptrdiff_t>(command.first_argument),
                         "--local-rank=${local_rank}");
  }
  return command;
}

}  // namespace lockstep::launch
