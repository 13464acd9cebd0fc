#include "flat_tensors.hpp"
#include "process_group_impl.hpp"

namespace lockstep {

/// Gloo exchanges slices of one tensor only, so the lists are laid into one; NCCL would group the same
/// messages.
Work ProcessGroup::all_to_all_async(const std::vector<at::Tensor>& outputs,
                                    const std::vector<at::Tensor>& inputs) const {
  comm::check_lists(outputs, inputs, size());
  const auto from = comm::flattened(inputs), to = comm::flat_space_for(outputs);
  Work work = all_to_all_single_async(to.buffer, from.buffer, to.sizes, from.sizes);
  return Work(std::make_shared<Work::Impl>(std::move(work), [to, outputs] { comm::copy_out(to, outputs); }));
}

}  // namespace lockstep
