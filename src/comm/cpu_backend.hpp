#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "lockstep/comm/process_group.hpp"
#include "membership.hpp"

namespace lockstep::comm {

/// What carries a group's CPU tensors.
struct CpuBackend {
  c10d::ProcessGroup::BackendType type;
  c10::intrusive_ptr<c10d::Backend> backend;
};

struct CpuBackendOptions {
  /// The group's communication thread may get a CPU of its own, which is for the group of all ranks: parts of
  /// it do not know which CPUs the others have.
  bool binds = false;
  /// Ranks that do not share memory compare their operations. Those that do always do.
  bool compares = true;
};

/// Shared memory where ranks of the group share it, Gloo between those that do not; or what the options ask
/// for. `store` is a corner that nobody else uses. *Collective*. Throws CommunicationError when shared memory
/// is asked for and the ranks do not share any, or when there is too little of it.
CpuBackend make_cpu_backend(const Membership& members, const Store& store, const ProcessGroupOptions& options,
                            const CpuBackendOptions& cpu);

}  // namespace lockstep::comm
