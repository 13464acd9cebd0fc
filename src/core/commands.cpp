#include "core/commands.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "core/suggestion.hpp"
#include "core/text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

std::string help_of(const std::vector<Command>& commands, const std::string& program) {
  std::string text = fmt::format("usage: {} COMMAND ...\n\ncommands:\n", program);
  std::size_t width = 0;
  for (const auto& command : commands) width = std::max(width, std::string_view(command.name).size());
  for (const auto& command : commands)
    text += fmt::format("  {:<{}}  {}\n", command.name, width, command.summary);
  return text + fmt::format("\n{} COMMAND --help shows the options of a command.\n", program);
}

}  // namespace

int run_one_of(const std::vector<Command>& commands, const std::string& program,
               const std::vector<std::string>& words, std::ostream& out, std::ostream& err) {
  const std::string name = words.empty() ? "" : words.front();
  if (name == "--help" || name == "-h" || name == "help") {
    out << help_of(commands, program);
    return 0;
  }
  std::vector<std::string> names;
  for (const auto& command : commands) {
    if (name == command.name) return command.run({words.begin() + 1, words.end()}, out, err);
    names.emplace_back(command.name);
  }
  const std::string came = words.empty() ? "" : fmt::format(", not '{}'{}", name, did_you_mean(name, names));
  throw UsageError(fmt::format("expected {}{}. See {} --help.", join_with_or(names), came, program));
}

}  // namespace lockstep
