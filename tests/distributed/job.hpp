#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "support/throws.hpp"
#include "unit/launch/launcher_process.hpp"

namespace lockstep::testing {

using launch::Finished;
using launch::LauncherProcess;
using launch::ScratchFolder;
using Words = std::vector<std::string>;

Words operator+(Words words, const Words& more);
/// The words of a command line without quotes.
Words split(const std::string& text);

/// Starts `program` (a path and its arguments) as `ranks` ranks under the real launcher.
std::unique_ptr<LauncherProcess> start_job(const Words& program, int ranks, const Words& flags = {},
                                           const Environment& variables = {});
/// Same, and waits for its end.
Finished run_job(const Words& program, int ranks, const Words& flags = {}, const Environment& variables = {});

/// Starts `probe SCENARIO ...` as `ranks` ranks under the real launcher.
Finished run_probe(int ranks, const Words& words, const Words& flags = {}, const Environment& variables = {});

/// One process of the probe without a launcher, with exactly these of the launcher's variables.
std::unique_ptr<LauncherProcess> start_probe(const Words& words, const Environment& variables);

/// The required variables for one of `size` processes on this host.
Environment by_hand(int rank, int size, int port);

/// A port that is free now. Another program may take it before the test does, which is unlikely.
int free_port();

std::vector<std::string> lines_of(const std::string& text);
int count_lines_with(const std::string& text, const std::string& part);

/// The only line in which `rank` of `program` reports its error; a test failure if there is none or several.
std::string error_of_rank(const Finished& job, int rank, const std::string& program = "probe");

/// Whether standard error is readable: the launcher's report, and at most one line per rank.
::testing::AssertionResult is_readable(const Finished& job, const std::string& program = "probe");

/// Whether the launcher names exactly this rank as the first that failed, and standard error is readable.
::testing::AssertionResult blames(const Finished& job, int rank, const std::string& program = "probe");

}  // namespace lockstep::testing
