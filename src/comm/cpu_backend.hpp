#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "lockstep/comm/process_group.hpp"
#include "membership.hpp"

namespace lockstep::comm {

/// What carries a group's CPU tensors.
struct CpuBackend {
  c10d::ProcessGroup::BackendType type;
  c10::intrusive_ptr<c10d::Backend> backend;
  /// All ranks share memory, and compare their operations by themselves.
  bool compares = false;
};

/// Shared memory where ranks of the group share it, Gloo between those that do not; or what the options ask
/// for. `store` is a corner that nobody else uses. *Collective*. Throws CommunicationError when shared memory
/// is asked for and the ranks do not share any, or when there is too little of it. `binds`: the group's
/// communication thread may get a CPU of its own, which is for the group of all ranks: parts of it do not
/// know which CPUs the others have.
CpuBackend make_cpu_backend(const Membership& members, const Store& store, const ProcessGroupOptions& options,
                            bool binds);

}  // namespace lockstep::comm
