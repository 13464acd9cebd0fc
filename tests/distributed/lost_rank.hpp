#pragma once

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "job.hpp"

namespace lockstep::testing {

/// A running process of a rank.
struct RankOnHost {
  pid_t pid = 0;
  int rank = 0;
  /// It replaces another one, or is a spare.
  bool is_successor = false;
};

/// Those with RANK in their environment and `mark` among their arguments.
inline std::vector<RankOnHost> ranks_on_host(const std::string& mark) {
  const auto read = [](const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(1, '\0') + std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string variable = std::string(1, '\0') + "RANK=";
  std::vector<RankOnHost> found;
  std::error_code gone;
  for (const auto& process : std::filesystem::directory_iterator("/proc", gone)) {
    const pid_t pid = std::atoi(process.path().filename().c_str());
    if (pid <= 0 || read(process.path() / "cmdline").find(mark) == std::string::npos) continue;
    const std::string environment = read(process.path() / "environ");
    const auto place = environment.find(variable);
    if (place == std::string::npos) continue;
    found.push_back({.pid = pid,
                     .rank = std::atoi(environment.c_str() + place + variable.size()),
                     .is_successor = environment.find("LOCKSTEP_REPLACES=") != std::string::npos});
  }
  return found;
}

/// Kills a rank's first process as soon as `is_time`. `mark`: see ranks_on_host().
inline void kill_rank(int rank, const std::string& mark, const std::function<bool()>& is_time) {
  ASSERT_TRUE(launch::eventually(is_time));
  int killed = 0;
  for (const auto& process : ranks_on_host(mark)) {
    if (process.rank == rank && !process.is_successor && ::kill(process.pid, SIGKILL) == 0) ++killed;
  }
  ASSERT_EQ(killed, 1) << "processes of rank " << rank;
}

}  // namespace lockstep::testing
