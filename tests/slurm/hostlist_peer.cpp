// Answers each host list on standard input with a line: its hosts, or "invalid". hostlists.py compares.
#include <iostream>
#include <string>

#include "core/cluster/hostlist.hpp"
#include "lockstep/core/error.hpp"

namespace {

std::string answer(const std::string& list) {
  std::string result;
  try {
    for (const auto& host : lockstep::expand_hostlist(list)) result += (result.empty() ? "" : " ") + host;
  } catch (const lockstep::UsageError&) {
    return "invalid";
  }
  return result;
}

}  // namespace

int main() {
  for (std::string list; std::getline(std::cin, list);) std::cout << answer(list) << '\n';
}
