#include "core/elastic/recovery_plan.hpp"

#include <fmt/format.h>

namespace lockstep::elastic {

std::string describe(const RankProcess& process) {
  if (process.process == 0) return fmt::format("rank {}", process.rank);
  return fmt::format("rank {} (process {})", process.rank, process.process + 1);
}

}  // namespace lockstep::elastic
