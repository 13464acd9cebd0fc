#include "shm/host.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace lockstep::shm {
namespace {

std::string boot_id() {
  std::string line;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> line;
  return line;
}

/// Sets of CPUs may be larger than cpu_set_t: the system says when.
std::vector<std::uint64_t> affinity() {
  for (std::size_t words = 16; words <= 1024; words *= 4) {
    std::vector<std::uint64_t> mask(words, 0);
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    if (sched_getaffinity(0, words * sizeof(std::uint64_t), set) == 0) return mask;
  }
  return {};
}

}  // namespace

std::string host_identity() {
  struct stat network {};
  stat("/proc/self/ns/net", &network);
  return boot_id() + "/" + std::to_string(network.st_ino) + "/" + std::to_string(geteuid());
}

std::string own_cpus() {
  std::vector<std::uint64_t> mask = affinity();
  while (!mask.empty() && mask.back() == 0) mask.pop_back();
  std::ostringstream text;
  text << std::hex;
  for (const auto word : mask) text << word << '.';
  return text.str();
}

int count_cpus(const std::vector<std::string>& masks) {
  std::vector<std::uint64_t> all;
  for (const auto& text : masks) {
    std::istringstream words(text);
    std::size_t place = 0;
    for (std::string word; std::getline(words, word, '.'); ++place) {
      all.resize(std::max(all.size(), place + 1), 0);
      all[place] |= std::strtoull(word.c_str(), nullptr, 16);
    }
  }
  int count = 0;
  for (const auto word : all) count += std::popcount(word);
  return count;
}

}  // namespace lockstep::shm
