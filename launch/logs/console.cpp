#include "logs/console.hpp"

#include <unistd.h>

#include <array>
#include <utility>

namespace lockstep::launch {
namespace {

bool wants_colours(const Environment& environment) {
  const bool refused = !find_variable(environment, "NO_COLOR").value_or("").empty();
  return !refused && find_variable(environment, "TERM").value_or("dumb") != "dumb";
}

}  // namespace

Console::Console(const Environment& environment)
    : colours_(wants_colours(environment)),
      out_(STDOUT_FILENO),
      err_(STDERR_FILENO),
      buffer_(err_),
      log_(&buffer_) {}

std::string Console::painted(const std::string& text, int rank, int stream) const {
  if (!colours_ || isatty(stream) != 1) return text;
  // Red is left to errors.
  constexpr std::array<const char*, 10> kColours{"36", "32", "33", "35", "34", "96", "92", "93", "95", "94"};
  return std::string("\x1b[") + kColours[static_cast<std::size_t>(rank) % kColours.size()] + "m" + text +
         "\x1b[0m";
}

int Console::LogBuffer::sync() {
  std::string text = str();
  str("");
  writer_.write_always(std::move(text));
  return 0;
}

}  // namespace lockstep::launch
