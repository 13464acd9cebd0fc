#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::launch {

/// A name and what stands for it.
using Macro = std::pair<std::string, std::string>;

/// The text with each `${name}` and `$name` of the macros replaced. Other names stay, and `$$` stays two
/// signs.
std::string substituted(const std::string& text, const std::vector<Macro>& macros);

/// A word as a shell would take it.
std::string shell_word(const std::string& word);

}  // namespace lockstep::launch
