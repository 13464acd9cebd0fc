#include "config/signal_list.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

/// 0: no signal has that name.
int signal_number(std::string_view name) {
  if (!name.starts_with("SIG")) return 0;
  for (int number = 1; number < SIGRTMIN; ++number) {
    const char* known = sigabbrev_np(number);
    if (known != nullptr && name.substr(3) == known) return number;
  }
  return 0;
}

std::string_view next_name(std::string_view& rest) {
  const auto comma = std::min(rest.find(','), rest.size());
  std::string_view name = rest.substr(0, comma);
  rest.remove_prefix(std::min(comma + 1, rest.size()));
  while (name.starts_with(' ')) name.remove_prefix(1);
  while (name.ends_with(' ')) name.remove_suffix(1);
  return name;
}

/// The launcher learns from this one that a rank has ended.
bool is_needed(int number) { return number == SIGCHLD; }

}  // namespace

std::vector<int> parse_signals(const std::string& text, std::vector<std::string>& notices) {
  std::vector<int> numbers;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string name(next_name(rest));
    const int number = signal_number(name);
    if (number == SIGKILL || number == SIGSTOP || is_needed(number)) {
      throw UsageError("--signals-to-handle '" + text + "': expected signals that can be handled; " + name +
                       " cannot. Leave it out.");
    }
    if (number == 0) {
      notices.push_back("--signals-to-handle: there is no signal '" + name + "'; it is passed over");
    } else if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

}  // namespace lockstep::launch
