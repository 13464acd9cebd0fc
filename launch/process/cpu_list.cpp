#include "process/cpu_list.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

constexpr int kMostCpus = 1 << 16;

/// A mask of any size: hosts with more CPUs than the fixed cpu_set_t holds (1024) exist.
class Mask {
 public:
  explicit Mask(int cpus) : cpus_(cpus), set_(CPU_ALLOC(cpus), [](cpu_set_t* set) { CPU_FREE(set); }) {
    if (set_ == nullptr) throw std::bad_alloc();
    CPU_ZERO_S(bytes(), set_.get());
  }

  std::size_t bytes() const { return CPU_ALLOC_SIZE(cpus_); }
  cpu_set_t* get() const { return set_.get(); }
  void add(int cpu) { CPU_SET_S(static_cast<std::size_t>(cpu), bytes(), set_.get()); }
  CpuSet cpus() const {
    CpuSet result;
    for (int cpu = 0; cpu < cpus_; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes(), set_.get())) result.insert(cpu);
    }
    return result;
  }

 private:
  int cpus_;
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set_;
};

/// A number at the front of the text, which is then taken off it.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || number < 0 || number >= kMostCpus) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return number;
}

/// "4" or "6-7" at the front of the text; false where none is.
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

}  // namespace

CpuSet parse_cpu_list(const std::string& text) {
  CpuSet cpus;
  for (std::string_view rest = text; take_range(rest, cpus) && rest.starts_with(',');) rest.remove_prefix(1);
  return cpus;
}

CpuSet intersection(const CpuSet& left, const CpuSet& right) {
  CpuSet result;
  std::set_intersection(left.begin(), left.end(), right.begin(), right.end(),
                        std::inserter(result, result.end()));
  return result;
}

CpuSet allowed_cpus() {
  for (int size = 1024; size <= kMostCpus; size *= 2) {
    const Mask mask(size);
    if (sched_getaffinity(0, mask.bytes(), mask.get()) == 0) return mask.cpus();
  }
  CpuSet all;
  for (int cpu = 0; cpu < std::max(1, static_cast<int>(std::thread::hardware_concurrency())); ++cpu) {
    all.insert(cpu);
  }
  return all;
}

void allow_cpus(const CpuSet& cpus) {
  Mask mask(cpus.empty() ? 1 : *cpus.rbegin() + 1);
  for (const int cpu : cpus) mask.add(cpu);
  if (sched_setaffinity(0, mask.bytes(), mask.get()) == 0) return;
  throw Error("cannot bind to the CPUs " + cpu_list_text(cpus) + ": " + std::strerror(errno) +
              ". They may have been taken away from this job; --cpu-binding none starts the ranks unbound.");
}

}  // namespace lockstep::launch
