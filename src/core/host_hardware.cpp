#include "core/host_hardware.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>

#include "core/byte_size.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// The text after a key, its separator and quotes; empty without a line that begins with the key.
std::string field_of(const fs::path& file, std::string_view key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const auto begin = line.find_first_not_of(" \t:=\"", key.size());
    const auto end = line.find_last_not_of(" \t\"");
    if (begin != std::string::npos && begin <= end) return line.substr(begin, end - begin + 1);
  }
  return "";
}

std::string system_words() {
  utsname name{};
  if (::uname(&name) != 0) return "";
  return fmt::format("{}, {} {} {}", field_of("/etc/os-release", "PRETTY_NAME"), name.sysname, name.release,
                     name.machine);
}

/// /proc/meminfo is in KiB.
std::string memory_words() {
  const auto kib = std::strtoull(field_of("/proc/meminfo", "MemTotal").c_str(), nullptr, 10);
  return kib == 0 ? "" : bytes_text(kib * 1024);
}

std::string gpu_words() {
  std::vector<std::string> gpus;
  std::error_code none;
  for (fs::directory_iterator entry("/proc/driver/nvidia/gpus", none), end; !none && entry != end;
       entry.increment(none))
    gpus.push_back(field_of(entry->path() / "information", "Model"));
  std::ranges::sort(gpus);
  return gpus.empty() ? "none" : fmt::format("{}", fmt::join(gpus, "; "));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> host_hardware() {
  std::vector<std::pair<std::string, std::string>> facts{
      {"system", system_words()},
      {"CPU", field_of("/proc/cpuinfo", "model name")},
      {"CPUs", std::to_string(std::thread::hardware_concurrency())},
      {"memory", memory_words()},
      {"GPUs", gpu_words()}};
  std::erase_if(facts, [](const auto& fact) { return fact.second.empty(); });
  return facts;
}

}  // namespace lockstep
