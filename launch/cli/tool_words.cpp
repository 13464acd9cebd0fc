#include "cli/tool_words.hpp"

#include <filesystem>

namespace lockstep::launch {

Words tool_words(const Tool& tool, Words run, const Words& words) {
  Words own{std::filesystem::read_symlink("/proc/self/exe").replace_filename(tool.name)};
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    Words& target = tool.options.contains(name) || tool.flags.contains(name) ? own : run;
    target.push_back(words[i]);
    const bool value_follows = tool.options.contains(words[i]) && i + 1 < words.size();
    if (value_follows) target.push_back(words[++i]);
  }
  run.insert(run.end(), own.begin(), own.end());
  return run;
}

}  // namespace lockstep::launch
