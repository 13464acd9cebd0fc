#pragma once

#include <optional>

#include "core/cpu_set.hpp"

namespace lockstep::launch {

/// Where one rank runs.
struct CpuBinding {
  /// Empty: wherever the launcher may run.
  CpuSet cpus = {};
  /// The NUMA node from which the rank takes memory first; nothing: the system's own way.
  std::optional<int> memory_node = std::nullopt;
};

/// Binds the calling thread for a while: a process that it starts meanwhile inherits the binding, so that it
/// is in force before the first instruction and the first page of the program. (A child of fork could bind
/// itself, but could not say why it failed.) A memory policy that the user gave the launcher, as with
/// numactl, is left alone.
class ScopedBinding {
 public:
  /// Throws lockstep::Error that names the CPUs when the system refuses. A refused memory policy (containers
  /// forbid it) costs speed only and is passed over.
  explicit ScopedBinding(const CpuBinding& binding);
  ~ScopedBinding();
  ScopedBinding(const ScopedBinding&) = delete;
  ScopedBinding& operator=(const ScopedBinding&) = delete;

 private:
  CpuSet before_;
  bool has_policy_ = false;
};

}  // namespace lockstep::launch
