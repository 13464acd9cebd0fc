#include "cli/tool.hpp"

#include <algorithm>
#include <filesystem>

namespace lockstep::launch {
namespace {

/// The option that a word names, as in "--json=FILE" or "--no-check"; null: none of these.
const OptionSpec* named_by(const std::vector<OptionSpec>& options, const std::string& word) {
  if (!word.starts_with("--")) return nullptr;
  std::string name = word.substr(2, word.find('=') - 2);
  std::replace(name.begin(), name.end(), '_', '-');
  const auto found = std::find_if(options.begin(), options.end(), [&](const OptionSpec& option) {
    return option.name == name || (option.is_switch() && "no-" + option.name == name);
  });
  return found == options.end() ? nullptr : &*found;
}

}  // namespace

ToolWords divide(const std::vector<OptionSpec>& options, const Words& words) {
  ToolWords result;
  for (auto word = words.begin(); word != words.end(); ++word) {
    const OptionSpec* option = named_by(options, *word);
    const bool own = option != nullptr || *word == "--help" || *word == "-h";
    (own ? result.own : result.run).push_back(*word);
    const bool needs_value =
        option != nullptr && !option->is_switch() && word->find('=') == std::string::npos;
    if (needs_value && word + 1 != words.end()) result.own.push_back(*++word);
  }
  return result;
}

std::string beside_launcher(const std::string& program) {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename(program);
}

}  // namespace lockstep::launch
