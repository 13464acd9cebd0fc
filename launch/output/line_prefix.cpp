#include "output/line_prefix.hpp"

#include "plan/substitution.hpp"

namespace lockstep::launch {

std::string line_prefix(const std::string& pattern, const std::string& role, int rank, int local_rank) {
  if (pattern.empty()) return "[" + role + std::to_string(local_rank) + "]: ";
  return substituted(
      pattern,
      {{"role_name", role}, {"rank", std::to_string(rank)}, {"local_rank", std::to_string(local_rank)}});
}

}  // namespace lockstep::launch
