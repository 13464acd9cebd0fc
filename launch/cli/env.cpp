#include "cli/env.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "core/byte_size.hpp"
#include "core/cpu_set.hpp"
#include "core/cuda_driver.hpp"
#include "core/host_name.hpp"
#include "core/json_text.hpp"
#include "lockstep/core/version.hpp"
#include "process/affinity.hpp"
#include "process/process_facts.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

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
                     std::thread::hardware_concurrency(), cores.size(), topology.nodes().size());
}

/// /proc/meminfo is in KiB.
std::string memory_text() {
  const auto bytes_of = [](const char* key) {
    return std::strtoull(value_in("/proc/meminfo", key).c_str(), nullptr, 10) * 1024;
  };
  if (bytes_of("MemTotal") == 0) return "";
  return fmt::format("{}, {} available", bytes_text(bytes_of("MemTotal")),
                     bytes_text(bytes_of("MemAvailable")));
}

std::string shared_memory_text() {
  struct statvfs status {};
  if (::statvfs("/dev/shm", &status) != 0) return "";
  return fmt::format("{}, {} free", bytes_text(status.f_frsize * status.f_blocks),
                     bytes_text(status.f_frsize * status.f_bavail));
}

std::string gpus_text() {
  std::vector<std::string> gpus;
  for (const auto& gpu : entries_in("/proc/driver/nvidia/gpus"))
    gpus.push_back(fmt::format("{} at {}", value_in(gpu / "information", "Model"), gpu.filename().string()));
  return gpus.empty() ? "none" : fmt::format("{}", fmt::join(gpus, "; "));
}

std::string names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& path : entries_in(folder)) names.push_back(path.filename());
  return fmt::format("{}", fmt::join(names, ", "));
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

/// The variables that are shown: these, and those with these prefixes.
constexpr const char* kNames[] = {"RANK",       "WORLD_SIZE",  "LOCAL_RANK",  "LOCAL_WORLD_SIZE",
                                  "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "LD_LIBRARY_PATH",
                                  "LD_PRELOAD", "TMPDIR"};
constexpr const char* kBeginnings[] = {"LOCKSTEP_",  "PET_",        "TORCH",   "NCCL_",     "GLOO_",
                                       "OMP_",       "KMP_",        "MKL_",    "CUDA_",     "NVIDIA_",
                                       "UCX_",       "GOMP_",       "MALLOC_", "SLURM_JOB", "SLURM_NTASKS",
                                       "SLURM_STEP", "SLURM_PROCID"};
constexpr const char* kSecrets[] = {"TOKEN", "SECRET", "PASS", "CREDENTIAL", "KEY"};

bool is_shown(const std::string& name) {
  return std::ranges::count(kNames, name) > 0 ||
         std::ranges::any_of(kBeginnings, [&](const char* known) { return name.starts_with(known); });
}

bool is_secret(const std::string& name) {
  return std::ranges::any_of(kSecrets,
                             [&](const char* part) { return name.find(part) != std::string::npos; });
}

constexpr const char* kLibrary = LOCKSTEP_LIBRARY_FILE;

/// The folder of an installation or a build; empty if neither is beside the launcher.
fs::path library_folder() {
  const fs::path prefix = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  for (const char* folder : {LOCKSTEP_LIBRARY_FOLDER, "lib"}) {
    if (fs::exists(prefix / folder / kLibrary)) return prefix / folder;
  }
  return {};
}

/// What the library reports: its version, LibTorch's, the CUDA devices and NCCL. If it cannot be loaded, the
/// only fact is the reason.
Facts library_facts() {
  void* library = ::dlopen((library_folder() / kLibrary).c_str(), RTLD_LAZY | RTLD_LOCAL);
  using Entry = const char* (*)();
  const auto entry =
      library == nullptr ? nullptr : reinterpret_cast<Entry>(::dlsym(library, "lockstep_library_facts"));
  if (entry == nullptr) return {{"library", fmt::format("not loaded: {}", ::dlerror())}};
  Facts facts;
  for (const auto& fact : nlohmann::json::parse(entry())) facts.emplace_back(fact.at(0), fact.at(1));
  // Stays loaded: LibTorch's threads and exit handlers do not survive unloading.
  return facts;
}

std::string cuda_feature(const Facts& library, const fs::path& folder, bool has_driver) {
  if (!has_driver)
    return "no: NVIDIA's driver is not loaded. Training runs on the CPU. For a GPU, install its driver; "
           "nvidia-smi then lists it";
  if (!fs::exists(folder / "liblockstep_cuda.so"))
    return "no: Lockstep was built without CUDA. Build it with a LibTorch that has CUDA (PyPI's torch has) "
           "and "
           "-DLOCKSTEP_CUDA=ON; CMake says what it lacks";
  for (const auto& [name, value] : library) {
    if (name == "CUDA") return "no: " + value;
  }
  return "yes";
}

std::string nccl_feature(const Facts& library, const std::string& cuda) {
  for (const auto& [name, value] : library) {
    if (name == "NCCL") return "yes: " + value;
  }
  return "no: NCCL comes with CUDA" + std::string(cuda == "yes" ? ", and no device is visible" : "");
}

std::string slurm_feature(const std::string& search_path) {
  for (const char* program : {"sbatch", "srun", "scontrol"}) {
    if (find_program(program, search_path).empty())
      return fmt::format(
          "no: {} is not on PATH. Install Slurm's client commands (Debian: slurm-client) or load "
          "the site's module; lockstep slurm script works without them",
          program);
  }
  return "yes";
}

std::string datasets_feature(const fs::path& folder) {
  if (fs::exists(folder / "liblockstep_datasets.so")) return "yes";
  return "no: liblockstep_datasets.so is missing. Build it with Apache Arrow (scripts/setup build fetches "
         "it, "
         "then cmake --build build)";
}

struct EnvOptions {
  bool json = false;
};

OptionTable<EnvOptions> env_options() {
  return OptionTable<EnvOptions>(
             "lockstep env",
             "Prints what a bug report needs: versions, the host with its devices and limits, whether CUDA, "
             "NCCL, Slurm and data sets can be used and how to get them, and the environment variables that "
             "affect jobs, without secrets.")
      .add("json", &EnvOptions::json, "As one JSON object.");
}

struct Section {
  const char* name;
  Facts facts;
};

void print(const std::vector<Section>& sections, std::ostream& out) {
  for (const auto& section : sections) {
    out << section.name << '\n';
    for (const auto& [name, value] : section.facts) out << fmt::format("  {:<20}  {}\n", name, value);
    if (section.facts.empty()) out << "  none\n";
  }
}

void print_json(const std::vector<Section>& sections, std::ostream& out) {
  nlohmann::ordered_json document;
  for (const auto& section : sections) {
    auto& object = document[section.name] = nlohmann::ordered_json::object();
    for (const auto& [name, value] : section.facts) object[name] = value;
  }
  out << json_text(document, 2) << '\n';
}

}  // namespace

Facts host_facts() {
  Facts facts = {{"host", host_name()},
                 {"system", system_text()},
                 {"CPU", value_in("/proc/cpuinfo", "model name")},
                 {"CPUs", cpus_text()},
                 {"memory", memory_text()},
                 {"/dev/shm", shared_memory_text()},
                 {"GPUs", gpus_text()},
                 {"NVIDIA driver", value_in("/proc/driver/nvidia/version", "NVRM version")},
                 {"network interfaces", interfaces_text()},
                 {"InfiniBand devices", names_in("/sys/class/infiniband")},
                 {"open files", limit_text(RLIMIT_NOFILE)},
                 {"locked memory", limit_text(RLIMIT_MEMLOCK)}};
  std::erase_if(facts, [](const auto& fact) { return fact.second.empty(); });
  return facts;
}

Facts feature_facts(const Facts& library, const fs::path& folder, bool has_driver,
                    const std::string& search_path) {
  const std::string cuda = cuda_feature(library, folder, has_driver);
  return {{"CUDA", cuda},
          {"NCCL", nccl_feature(library, cuda)},
          {"Slurm", slurm_feature(search_path)},
          {"data sets", datasets_feature(folder)}};
}

Facts variable_facts(const Environment& environment) {
  Facts facts;
  for (const auto& [name, value] : environment) {
    if (is_shown(name)) facts.emplace_back(name, is_secret(name) ? "(set)" : value);
  }
  return facts;
}

int env_command(const Words& words, std::ostream& out, std::ostream&) {
  const auto parsed = parse_or_help(env_options(), words, out);
  if (!parsed) return 0;
  const Environment environment = process_environment();
  const Facts library = library_facts();
  Facts versions = {{"lockstep", version()}};
  versions.insert(versions.end(), library.begin(), library.end());
  const std::vector<Section> sections = {
      {"versions", versions},
      {"host", host_facts()},
      {"features", feature_facts(library, library_folder(), has_cuda_driver(),
                                 find_variable(environment, "PATH").value_or(""))},
      {"variables", variable_facts(environment)}};
  if (parsed->options.json) {
    print_json(sections, out);
  } else {
    print(sections, out);
  }
  return 0;
}

}  // namespace lockstep::launch
