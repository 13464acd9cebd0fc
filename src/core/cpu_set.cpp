#include "core/cpu_set.hpp"

#include <fmt/core.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Larger than the kernel's own mask: the fixed cpu_set_t has 1024 CPUs. The kernel uses the part it needs.
using Mask = std::array<cpu_set_t, kMaxCpus / CPU_SETSIZE>;

/// Removes a number from the front of the text.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || number < 0 || number >= kMaxCpus) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return number;
}

/// Removes "4" or "6-7" from the front of the text; false if there is none.
bool take_range(std::string_view& text, CpuSet& cpus) {
  const auto first = take_number(text);
  if (!first) return false;
  auto last = first;
  if (text.starts_with('-')) {
    text.remove_prefix(1);
    last = take_number(text);
  }
  for (int cpu = *first; last && cpu <= *last; ++cpu) cpus.insert(cpu);
  return last.has_value();
}

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

/// The lowest limit of a cgroup and its ancestors, which apply to it too.
template <class Limit>
int least_limit(const fs::path& mount, fs::path group, Limit limit) {
  int least = limit(mount);
  for (group = group.relative_path(); group.has_filename(); group = group.parent_path())
    least = std::min(least, limit(mount / group));
  return least;
}

int quota_count(const std::string& membership, const std::string& mount) {
  int least = kNoLimit;
  for (const auto& cgroup : read_cgroups(membership)) {
    if (cgroup.is_v2()) least = std::min(least, least_limit(mount, cgroup.path, limit_of_v2));
    if (cgroup.has("cpu"))
      least = std::min(least, least_limit(fs::path(mount) / "cpu", cgroup.path, limit_of_v1));
  }
  return least;
}

}  // namespace

std::string cpu_list_text(const CpuSet& cpus) {
  std::string text;
  for (auto at = cpus.begin(); at != cpus.end();) {
    const int first = *at;
    int last = first;
    for (++at; at != cpus.end() && *at == last + 1; ++at) last = *at;
    if (!text.empty()) text += ',';
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  }
  return text;
}

CpuSet parse_cpu_list(const std::string& text) {
  CpuSet cpus;
  for (std::string_view rest = text; take_range(rest, cpus) && rest.starts_with(',');) rest.remove_prefix(1);
  return cpus;
}

CpuSet allowed_cpus() {
  Mask mask{};
  CpuSet cpus;
  // Unlike glibc's function, the system call returns the size of the kernel's mask. The launcher asks before
  // it starts each rank, so that it must not test all of kMaxCpus.
  const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask.data());
  for (int cpu = 0; cpu < bytes * 8; ++cpu) {
    if (CPU_ISSET_S(static_cast<std::size_t>(cpu), sizeof mask, mask.data()) != 0) cpus.insert(cpu);
  }
  if (bytes < 0) {
    const int count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    for (int cpu = 0; cpu < count; ++cpu) cpus.insert(cpu);
  }
  return cpus;
}

int usable_cpus(const std::string& membership, const std::string& mount) {
  return std::max(1, std::min(static_cast<int>(allowed_cpus().size()), quota_count(membership, mount)));
}

bool bind_thread_to(const CpuSet& cpus) noexcept {
  Mask mask{};
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), sizeof mask, mask.data());
  return sched_setaffinity(0, sizeof mask, mask.data()) == 0;
}

bool CgroupMembership::has(const std::string& controller) const {
  return ("," + controllers + ",").find("," + controller + ",") != std::string::npos;
}

std::vector<CgroupMembership> read_cgroups(const std::string& file) {
  std::ifstream lines(file);
  std::vector<CgroupMembership> result;
  // "number:controllers:path".
  for (std::string line; std::getline(lines, line);) {
    std::istringstream parts(line);
    std::string number;
    CgroupMembership membership;
    if (std::getline(parts, number, ':') && std::getline(parts, membership.controllers, ':') &&
        std::getline(parts, membership.path))
      result.push_back(membership);
  }
  return result;
}

}  // namespace lockstep
