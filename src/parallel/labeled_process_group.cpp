#include "labeled_process_group.hpp"

#include <utility>

#include "comm/c10d_handles.hpp"
#include "comm/diagnostics/op_meta.hpp"

namespace lockstep::parallel {

/// With the backends, so that operations that c10d dispatches by device find them here as well.
LabeledProcessGroup::LabeledProcessGroup(const lockstep::ProcessGroup& group)
    : c10d::ProcessGroup(group.rank(), group.size()), inner_(comm::to_intrusive(group.c10d_process_group())) {
  setBoundDeviceId(inner_->getBoundDeviceId());
  for (const auto& device : inner_->getDeviceTypes()) {
    const auto backend = inner_->getBackend(device.type());
    setBackend(device.type(), strToBackendType(backend->getBackendName()), backend);
  }
  setDefaultBackend(inner_->getBackendType());
}

/// Gradients are no integers: those are the map of unused parameters, which the reducer sends last.
c10::intrusive_ptr<c10d::Work> LabeledProcessGroup::allreduce(std::vector<at::Tensor>& tensors,
                                                              const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors.front().scalar_type() == at::kInt)
    return inner_->allreduce(tensors, options);
  const comm::OperationLabel label("bucket " + std::to_string(next_++));
  return inner_->allreduce(tensors, options);
}

}  // namespace lockstep::parallel
