#pragma once

#include <string>
#include <vector>

#include "config/run_options.hpp"
#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// The words to execute, and where the program's own arguments begin in them.
struct Command {
  /// How the program is called in messages.
  std::string program;
  std::vector<std::string> words;
  std::size_t first_argument = 1;
  /// The file that the interpreter is to read; empty: the words name no such file.
  std::string script = {};
};

/// The program of the options, with an interpreter in front where it needs one (PYTHON_EXEC, else python3);
/// --check has a program of its own, beside this one.
/// Throws UsageError.
Command command_of(const RunOptions& options, const Environment& environment);

}  // namespace lockstep::launch
