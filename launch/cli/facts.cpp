#include "cli/facts.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "core/cpu_set.hpp"
#include "core/host_name.hpp"
#include "process/topology.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

/// What follows `key` and a separator on the first line that begins with it.
std::string value_in(const std::string& file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const auto begin = line.find_first_not_of(" \t:=\"", key.size());
    if (begin == std::string::npos) return "";
    return line.substr(begin, line.find_last_not_of(" \t\"") + 1 - begin);
  }
  return "";
}

std::string gib(double bytes) { return fmt::format("{:.1f} GiB", bytes / (1 << 30)); }

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    names.insert(entry->path().filename());
  return names;
}

std::string system_text() {
  utsname name{};
  if (::uname(&name) != 0) return "";
  return fmt::format("{}, {} {} {}", value_in("/etc/os-release", "PRETTY_NAME"), name.sysname, name.release,
                     name.machine);
}

std::string cpus_text() {
  const auto topology = read_topology();
  std::set<int> cores;
  for (const auto& entry : topology.cpus) cores.insert(entry.second.core);
  return fmt::format("{} usable of {} logical, {} cores, {} NUMA node(s)", allowed_cpus().size(),
                     std::thread::hardware_concurrency(), cores.size(), topology.nodes.size());
}

/// "/proc/meminfo" counts in KiB.
std::string memory_text() {
  const std::string total = value_in("/proc/meminfo", "MemTotal");
  const std::string free = value_in("/proc/meminfo", "MemAvailable");
  if (total.empty() || free.empty()) return "";
  return fmt::format("{}, {} available", gib(std::strtod(total.c_str(), nullptr) * 1024),
                     gib(std::strtod(free.c_str(), nullptr) * 1024));
}

std::string shared_memory_text() {
  struct statvfs status {};
  if (::statvfs("/dev/shm", &status) != 0) return "";
  const auto unit = static_cast<double>(status.f_frsize);
  return fmt::format("{}, {} free", gib(unit * static_cast<double>(status.f_blocks)),
                     gib(unit * static_cast<double>(status.f_bavail)));
}

std::string gpus_text() {
  const std::string folder = "/proc/driver/nvidia/gpus";
  std::vector<std::string> gpus;
  for (const auto& name : names_in(folder)) {
    const std::string file = fmt::format("{}/{}/information", folder, name);
    gpus.push_back(fmt::format("{} at {}", value_in(file, "Model"), name));
  }
  return gpus.empty() ? "none" : fmt::format("{}", fmt::join(gpus, "; "));
}

std::string interfaces_text() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::set<std::string> names;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if ((entry->ifa_flags & IFF_UP) != 0) names.insert(entry->ifa_name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string limit_text(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return "";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit.rlim_cur);
}

/// Which variables are shown: these, and those that begin so.
constexpr const char* kNames[] = {"RANK",       "WORLD_SIZE",  "LOCAL_RANK",  "LOCAL_WORLD_SIZE",
                                  "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "LD_LIBRARY_PATH",
                                  "LD_PRELOAD", "TMPDIR"};
constexpr const char* kBeginnings[] = {"LOCKSTEP_",  "PET_",        "TORCH",   "NCCL_",     "GLOO_",
                                       "OMP_",       "KMP_",        "MKL_",    "CUDA_",     "NVIDIA_",
                                       "UCX_",       "GOMP_",       "MALLOC_", "SLURM_JOB", "SLURM_NTASKS",
                                       "SLURM_STEP", "SLURM_PROCID"};
constexpr const char* kSecrets[] = {"TOKEN", "SECRET", "PASS", "CREDENTIAL", "KEY"};

bool is_shown(const std::string& name) {
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](const char* known) { return name == known; }) ||
         std::any_of(std::begin(kBeginnings), std::end(kBeginnings),
                     [&](const char* known) { return name.starts_with(known); });
}

bool is_secret(const std::string& name) {
  return std::any_of(std::begin(kSecrets), std::end(kSecrets),
                     [&](const char* part) { return name.find(part) != std::string::npos; });
}

constexpr const char* kLibrary = LOCKSTEP_LIBRARY_FILE;

/// The file to load: an installation's, a build folder's, or the bare name for the system to find.
std::string library_file() {
  const fs::path prefix = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  for (const char* folder : {LOCKSTEP_LIBRARY_FOLDER, "lib"}) {
    const fs::path file = prefix / folder / kLibrary;
    if (fs::exists(file)) return file;
  }
  return kLibrary;
}

}  // namespace

Facts library_facts() {
  void* library = ::dlopen(library_file().c_str(), RTLD_LAZY | RTLD_LOCAL);
  using Entry = const char* (*)();
  const auto entry =
      library == nullptr ? nullptr : reinterpret_cast<Entry>(::dlsym(library, "lockstep_library_facts"));
  if (entry == nullptr) return {{"library", fmt::format("not loaded: {}", ::dlerror())}};
  Facts facts;
  for (const auto& fact : nlohmann::json::parse(entry())) facts.emplace_back(fact.at(0), fact.at(1));
  // Stays loaded: LibTorch's threads and exit handlers do not survive being unloaded.
  return facts;
}

Facts host_facts() {
  Facts facts = {
      {"host", host_name()},
      {"system", system_text()},
      {"CPU", value_in("/proc/cpuinfo", "model name")},
      {"CPUs", cpus_text()},
      {"memory", memory_text()},
      {"/dev/shm", shared_memory_text()},
      {"GPUs", gpus_text()},
      {"NVIDIA driver", value_in("/proc/driver/nvidia/version", "NVRM version")},
      {"network interfaces", interfaces_text()},
      {"InfiniBand devices", fmt::format("{}", fmt::join(names_in("/sys/class/infiniband"), ", "))},
      {"open files", limit_text(RLIMIT_NOFILE)},
      {"locked memory", limit_text(RLIMIT_MEMLOCK)}};
  std::erase_if(facts, [](const auto& fact) { return fact.second.empty(); });
  return facts;
}

Facts variable_facts(const Environment& environment) {
  Facts facts;
  for (const auto& [name, value] : environment) {
    if (is_shown(name)) facts.emplace_back(name, is_secret(name) ? "(set)" : value);
  }
  return facts;
}

}  // namespace lockstep::launch
