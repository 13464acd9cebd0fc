#pragma once

#include <string>
#include <vector>

#include "lockstep/core/options.hpp"

namespace lockstep {

/// The switch that `--<name>` turns off ("no-resume": the option "resume"); null if there is none.
const OptionSpec* find_negated_switch(const OptionSet& set, const std::string& name);

/// Rewrites a command line in the grammar of the table (OptionGrammar) to the one that cxxopts parses: names
/// in full and with hyphens, letters and their values in words of their own, and positional arguments at the
/// end, after "--". Values stay as they are. The words after `--help` are left out. Throws UsageError for an
/// unknown or ambiguous flag and for a missing value.
std::vector<std::string> spell_out(const OptionSet& set, const std::vector<std::string>& words);

}  // namespace lockstep
