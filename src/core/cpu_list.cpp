#include "core/cpu_list.hpp"

namespace lockstep {
namespace {

std::string range_text(int first, int last) {
  return std::to_string(first) + (first == last ? "" : "-" + std::to_string(last));
}

}  // namespace

std::string cpu_list_text(const std::set<int>& cpus) {
  std::string text;
  for (auto at = cpus.begin(); at != cpus.end();) {
    const int first = *at;
    int last = first;
    for (++at; at != cpus.end() && *at == last + 1; ++at) last = *at;
    text += (text.empty() ? "" : ",") + range_text(first, last);
  }
  return text;
}

}  // namespace lockstep
