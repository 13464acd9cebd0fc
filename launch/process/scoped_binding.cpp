#include "process/scoped_binding.hpp"

#include <fmt/core.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <vector>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

bool has_default_policy() {
  int mode = -1;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL) == 0 && mode == MPOL_DEFAULT;
}

/// Preferred and not bound: a full node must not mean death by want of memory.
bool prefer_memory_of(int node) {
  constexpr unsigned long kBits = 8 * sizeof(unsigned long);
  const auto number = static_cast<unsigned long>(node);
  std::vector<unsigned long> mask(number / kBits + 1, 0);
  mask[number / kBits] = 1UL << (number % kBits);
  // The kernel reads one bit less than it is told.
  return syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.data(), mask.size() * kBits + 1) == 0;
}

}  // namespace

ScopedBinding::ScopedBinding(const CpuBinding& binding) {
  if (binding.cpus.empty()) return;
  before_ = allowed_cpus();
  if (!bind_thread_to(binding.cpus)) {
    throw Error(fmt::format(
        "cannot bind to the CPUs {}: {}. They may have been taken away from this job; --cpu-binding none "
        "starts the ranks unbound.",
        cpu_list_text(binding.cpus), std::generic_category().message(errno)));
  }
  if (binding.memory_node && has_default_policy()) has_policy_ = prefer_memory_of(*binding.memory_node);
}

ScopedBinding::~ScopedBinding() {
  if (has_policy_) syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL);
  // Where the CPUs were taken away meanwhile, the launcher, which sleeps nearly always, runs on those of the
  // rank.
  if (!before_.empty()) bind_thread_to(before_);
}

}  // namespace lockstep::launch
