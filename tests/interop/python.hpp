#pragma once

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::testing {

inline std::string shell_quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char letter : word) quoted += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return quoted + "'";
}

/// Runs a script of this folder with the peer Python, waits for its end, and gives what it printed. Throws
/// when it ends with another code than 0; its errors go to this test's own standard error.
inline std::string run_python(const std::string& script, const std::vector<std::string>& arguments = {}) {
  std::string command =
      shell_quoted(LOCKSTEP_TEST_PYTHON) + " -B " + shell_quoted(LOCKSTEP_INTEROP_DIR "/" + script);
  for (const auto& argument : arguments) command += " " + shell_quoted(argument);
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start " + command);
  std::string output;
  std::vector<char> buffer(1 << 16);
  for (std::size_t got = 1; got > 0;) {
    got = std::fread(buffer.data(), 1, buffer.size(), pipe);
    output.append(buffer.data(), got);
  }
  const int status = ::pclose(pipe);
  if (status != 0) throw std::runtime_error(command + " ended with status " + std::to_string(status));
  return output;
}

}  // namespace lockstep::testing
