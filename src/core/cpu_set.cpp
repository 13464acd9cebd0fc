#include "core/cpu_set.hpp"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

namespace lockstep {
namespace {

/// A mask of any size: hosts with more CPUs than the fixed cpu_set_t holds (1024) exist.
class Mask {
 public:
  explicit Mask(int cpus)
      : bytes_(CPU_ALLOC_SIZE(cpus)), set_(CPU_ALLOC(cpus), [](cpu_set_t* set) { CPU_FREE(set); }) {
    if (set_ != nullptr) CPU_ZERO_S(bytes_, set_.get());
  }

  explicit operator bool() const { return set_ != nullptr; }
  std::size_t bytes() const { return bytes_; }
  cpu_set_t* get() const { return set_.get(); }
  void add(int cpu) { CPU_SET_S(static_cast<std::size_t>(cpu), bytes_, set_.get()); }
  bool holds(int cpu) const { return CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes_, set_.get()) != 0; }

 private:
  std::size_t bytes_;
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set_;
};

/// A number at the front of the text, which is then taken off it.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || number < 0 || number >= kMaxCpus) return std::nullopt;
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

CpuSet intersection(const CpuSet& left, const CpuSet& right) {
  CpuSet result;
  std::set_intersection(left.begin(), left.end(), right.begin(), right.end(),
                        std::inserter(result, result.end()));
  return result;
}

CpuSet allowed_cpus() {
  CpuSet cpus;
  for (int size = 1024; size <= kMaxCpus && cpus.empty(); size *= 2) {
    const Mask mask(size);
    // The kernel refuses a mask that is smaller than its own.
    if (!mask || sched_getaffinity(0, mask.bytes(), mask.get()) != 0) continue;
    for (int cpu = 0; cpu < size; ++cpu) {
      if (mask.holds(cpu)) cpus.insert(cpus.end(), cpu);
    }
  }
  if (!cpus.empty()) return cpus;
  const int count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (int cpu = 0; cpu < count; ++cpu) cpus.insert(cpu);
  return cpus;
}

bool bind_thread_to(const CpuSet& cpus) noexcept {
  Mask mask(cpus.empty() ? 1 : *cpus.rbegin() + 1);
  if (!mask) {
    errno = ENOMEM;
    return false;
  }
  for (const int cpu : cpus) mask.add(cpu);
  return sched_setaffinity(0, mask.bytes(), mask.get()) == 0;
}

}  // namespace lockstep
