#pragma once

#include <utility>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep {

/// The part that does not depend on the module's type. Use it through FrozenModel.
class FrozenModelBase {
 public:
  const ProcessGroup& process_group() const noexcept { return group_; }
  /// The trained parameters: none.
  static const std::vector<NamedTensor>& parameters() noexcept;

 protected:
  FrozenModelBase(std::vector<NamedTensor> frozen, const std::vector<NamedTensor>& buffers,
                  const ProcessGroup& group);
  /// Throws UsageError if a parameter requires a gradient by now.
  void check_frozen() const;

 private:
  ProcessGroup group_;
  std::vector<NamedTensor> frozen_;
};

/// A model of which no parameter requires a gradient, such as the teacher of a distillation: what
/// Accelerator::prepare makes of it. There is nothing to average, so it has no other wrapper. A handle.
template <class Module>
class FrozenModel : public FrozenModelBase {
 public:
  /// Checks that all ranks have the same parameters and buffers, then copies rank 0's values to the others,
  /// as DistributedDataParallel does. *Collective*. Throws CommunicationError on every rank, which names the
  /// parameter and the ranks that differ.
  FrozenModel(Module module, const ProcessGroup& group)
      : FrozenModelBase(parallel::named_parameters_of(module), parallel::named_buffers_of(module), group),
        module_(std::move(module)) {}

  /// The module's forward. *Local*. Throws UsageError, with gradients enabled and several ranks, if a
  /// parameter was unfrozen since: nothing would average its gradient.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    check_frozen();
    return parallel::call(module_, std::forward<Inputs>(inputs)...);
  }

  /// The module itself.
  Module& module() { return module_; }
  const Module& module() const { return module_; }

 private:
  Module module_;
};

}  // namespace lockstep
