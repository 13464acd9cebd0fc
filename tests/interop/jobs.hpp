#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "unit/launch/launcher_process.hpp"

namespace lockstep::testing {

using launch::Finished;
using Words = std::vector<std::string>;

inline Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// The variables in a file of lines NAME=VALUE.
inline Environment read_settings(const std::string& path) {
  Environment settings;
  std::istringstream lines(launch::read_file(path));
  for (std::string line; std::getline(lines, line);) {
    const auto equals = line.find('=');
    settings[line.substr(0, equals)] = line.substr(equals + 1);
  }
  EXPECT_FALSE(settings.empty()) << path;
  return settings;
}

/// Runs a program to its end; that it fails is a failure of the test. One thread for each process unless
/// `variables` say otherwise: the order of sums depends on the number of threads.
inline Finished run_program(const std::string& program, const Words& arguments, Environment variables = {}) {
  variables.emplace("OMP_NUM_THREADS", "1");
  const Finished result =
      launch::LauncherProcess(arguments, variables, {}, program).wait(launch::kPythonLimit);
  std::string command = program;
  for (const auto& word : arguments) command += " " + word;
  EXPECT_EQ(result.status, 0) << command << "\n" << result.out << result.err;
  return result;
}

/// `lockstep run` with `ranks` ranks of a program and its arguments. A Python script is run by the peer
/// Python.
inline Finished run_under_lockstep(int ranks, const Words& command, Environment variables = {}) {
  variables.emplace("PYTHON_EXEC", LOCKSTEP_TEST_PYTHON);
  const Words flags{"run", "--nproc-per-node", std::to_string(ranks)};
  return run_program(LOCKSTEP_LAUNCHER, joined(flags, command), variables);
}

/// The real torchrun. `flags` say where the ranks meet; what torchrun writes goes into `scratch`.
inline Finished run_under_torchrun(const Words& flags, const Words& command, const std::string& scratch,
                                   Environment variables = {}) {
  variables.emplace("TMPDIR", scratch);
  const Words torchrun{"-B", "-m", "torch.distributed.run"};
  return run_program(LOCKSTEP_TEST_PYTHON, joined(joined(torchrun, flags), command), variables);
}

/// Two ranks that meet at a port of torchrun's own choice.
inline Words standalone_flags() { return {"--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2"}; }

}  // namespace lockstep::testing
