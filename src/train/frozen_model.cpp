#include "lockstep/train/frozen_model.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/core.h>

#include "comm/group_observer.hpp"
#include "comm/set_up_record.hpp"
#include "lockstep/core/error.hpp"
#include "parallel/fsdp/sharded_parameter_registry.hpp"
#include "parallel/module_agreement.hpp"

namespace lockstep {
namespace {

std::string complaint_about(const std::vector<NamedTensor>& parameters) {
  for (const auto& entry : parameters) {
    if (!parallel::ShardedParameterRegistry::contain(entry.tensor)) continue;
    return fmt::format(
        "parameter '{}' is fully sharded, but no parameter of its model requires a gradient: create a frozen "
        "model outside of sharded_init()",
        entry.name);
  }
  return "";
}

void copy_from_first_rank(const ProcessGroup& group, const std::vector<NamedTensor>& tensors) {
  for (const auto& entry : parallel::without_repeats(tensors)) parallel::copy_values(group, entry.tensor);
}

}  // namespace

FrozenModelBase::FrozenModelBase(std::vector<NamedTensor> frozen, const std::vector<NamedTensor>& buffers,
                                 const ProcessGroup& group)
    : group_(group), frozen_(std::move(frozen)) {
  const std::string complaint = complaint_about(frozen_);
  if (group.size() == 1) {
    if (!complaint.empty()) throw UsageError(complaint);
    return;
  }
  // A process that replaces a lost one gets the values with the state of the others.
  if (comm::is_newcomer(group)) {
    if (!complaint.empty()) throw UsageError(complaint);
    return;
  }
  const comm::LeftOutByNewcomers left_out(group);
  parallel::check_agreement(group, {frozen_, buffers, "no parameter requires a gradient", complaint});
  copy_from_first_rank(group, frozen_);
  copy_from_first_rank(group, buffers);
}

const std::vector<NamedTensor>& FrozenModelBase::parameters() noexcept {
  static const std::vector<NamedTensor> none;
  return none;
}

void FrozenModelBase::check_frozen() const {
  if (group_.size() == 1 || !at::GradMode::is_enabled()) return;
  for (const auto& entry : frozen_) {
    if (!entry.tensor.requires_grad()) continue;
    throw UsageError(fmt::format(
        "rank {} of {}: parameter '{}' requires a gradient, but no parameter did when the model was "
        "prepared, so that nothing averages it: prepare the model after unfreezing",
        group_.rank(), group_.size(), entry.name));
  }
}

}  // namespace lockstep
