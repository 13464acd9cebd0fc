#include "shm/processors.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <sstream>

#include "core/cpu_list.hpp"

namespace lockstep::shm {
namespace {

constexpr std::size_t kWordBits = 64;

/// Sets of CPUs may be larger than cpu_set_t: the system says when.
std::vector<std::uint64_t> affinity() {
  for (std::size_t words = 16; words <= 1024; words *= 4) {
    std::vector<std::uint64_t> mask(words, 0);
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    if (sched_getaffinity(0, words * sizeof(std::uint64_t), set) == 0) return mask;
  }
  return {};
}

std::set<int> cpus_of(const std::string& text) {
  std::set<int> cpus;
  std::istringstream words(text);
  int first = 0;
  for (std::string digits; std::getline(words, digits, '.'); first += static_cast<int>(kWordBits)) {
    const std::uint64_t word = std::strtoull(digits.c_str(), nullptr, 16);
    for (int bit = 0; bit < static_cast<int>(kWordBits); ++bit) {
      if ((word >> bit & 1U) != 0) cpus.insert(cpus.end(), first + bit);
    }
  }
  return cpus;
}

/// The highest of these that nobody has taken; -1: there is none.
int highest_free(const std::set<int>& cpus, const std::set<int>& taken) {
  const auto found = std::find_if(cpus.rbegin(), cpus.rend(), [&](int cpu) { return !taken.contains(cpu); });
  return found == cpus.rend() ? -1 : *found;
}

}  // namespace

std::string own_cpus() {
  std::vector<std::uint64_t> mask = affinity();
  while (!mask.empty() && mask.back() == 0) mask.pop_back();
  std::ostringstream text;
  text << std::hex;
  for (const auto word : mask) text << word << '.';
  return text.str();
}

int count_cpus(const std::vector<Processors>& ranks) {
  std::set<int> all;
  for (const auto& rank : ranks) all.merge(cpus_of(rank.cpus));
  return static_cast<int>(all.size());
}

std::vector<int> communication_cpus(const std::vector<Processors>& ranks) {
  int needed = 0;
  for (const auto& rank : ranks) needed += rank.threads + 1;
  if (count_cpus(ranks) < needed) return {};
  std::vector<int> chosen;
  std::set<int> taken;
  for (const auto& rank : ranks) {
    const std::set<int> cpus = cpus_of(rank.cpus);
    const int cpu = highest_free(cpus, taken);
    if (cpu < 0 || static_cast<int>(cpus.size()) <= rank.threads) return {};
    taken.insert(cpu);
    chosen.push_back(cpu);
  }
  return chosen;
}

std::string cpu_list(const std::string& cpus) { return cpu_list_text(cpus_of(cpus)); }

bool bind_thread_to(int cpu) noexcept {
  cpu_set_t* const set = CPU_ALLOC(static_cast<std::size_t>(cpu) + 1);
  if (set == nullptr) return false;
  const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(cpu) + 1);
  CPU_ZERO_S(bytes, set);
  CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set);
  const bool bound = sched_setaffinity(0, bytes, set) == 0;
  CPU_FREE(set);
  return bound;
}

}  // namespace lockstep::shm
