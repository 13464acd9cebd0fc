#include "lockstep/core/processors.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "core/cgroup.hpp"
#include "core/cpu_set.hpp"
#include "core/variables.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using variables::whole_number;

constexpr int kNoLimit = std::numeric_limits<int>::max();

int rounded_up(std::int64_t quota, std::int64_t period) {
  if (quota <= 0 || period <= 0) return kNoLimit;
  return static_cast<int>(std::min<std::int64_t>((quota + period - 1) / period, kNoLimit));
}

/// "150000 100000" or "max 100000".
int limit_of_v2(const fs::path& folder) {
  std::ifstream file(folder / "cpu.max");
  std::int64_t quota = 0, period = 0;
  return file >> quota >> period ? rounded_up(quota, period) : kNoLimit;
}

int limit_of_v1(const fs::path& folder) {
  std::ifstream quota_file(folder / "cpu.cfs_quota_us"), period_file(folder / "cpu.cfs_period_us");
  std::int64_t quota = 0, period = 0;
  return quota_file >> quota && period_file >> period ? rounded_up(quota, period) : kNoLimit;
}

/// The least limit of a group and of all those above it, which bind it too.
template <class Limit>
int least_limit(const fs::path& mount, fs::path group, Limit limit) {
  int least = limit(mount);
  for (group = group.relative_path(); group.has_filename(); group = group.parent_path())
    least = std::min(least, limit(mount / group));
  return least;
}

int quota_count(const ProcessorFiles& files) {
  int least = kNoLimit;
  for (const auto& cgroup : read_cgroups(files.membership)) {
    if (cgroup.is_v2()) least = std::min(least, least_limit(files.mount, cgroup.path, limit_of_v2));
    if (cgroup.has("cpu"))
      least = std::min(least, least_limit(files.mount / "cpu", cgroup.path, limit_of_v1));
  }
  return least;
}

int usable(const ProcessorFiles& files) {
  return std::max(1, std::min(static_cast<int>(allowed_cpus().size()), quota_count(files)));
}

std::optional<int> number_in(const Environment& environment, std::string_view name) {
  return whole_number(find_variable(environment, name).value_or(""), 1);
}

}  // namespace

int available_cpus(const Environment& environment, const ProcessorFiles& files) {
  const auto of_task = number_in(environment, "SLURM_CPUS_PER_TASK");
  if (!of_task) return usable(files);
  if (!find_variable(environment, "TORCHELASTIC_RUN_ID")) return *of_task;
  const int ranks = number_in(environment, "LOCAL_WORLD_SIZE").value_or(1);
  return std::max(1, std::min(*of_task / ranks, usable(files)));
}

}  // namespace lockstep
