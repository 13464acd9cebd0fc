#pragma once

#include "cli/commands.hpp"
#include "config/run_options.hpp"

namespace lockstep::launch {

/// Starts a program as several ranks on this host.
int run_command(const Words& words, std::ostream& out, std::ostream& err);

/// `lockstep run` after its options are parsed.
int run_job(const OptionTable<RunOptions>::Parsed& parsed, std::ostream& out, std::ostream& err);

}  // namespace lockstep::launch
