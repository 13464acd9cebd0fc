#include <torch/csrc/autograd/graph_task.h>

#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "lockstep/core/error.hpp"
#include "parallel/ddp_state.hpp"
#include "parallel/module_agreement.hpp"

namespace lockstep {

// c10d's reducer cannot be repaired after a backward that failed: its buckets are half filled, and operations
// of the old group write to them until these have ended. So it is replaced, in this order:
//
//   1. The exception has left backward(), and the operations of the group have been aborted. On a CPU the
//      engine runs backward in the calling thread, and dropped the graph task with its callbacks when the
//      exception passed: no thread runs the reducer's hooks any more. (Inside of a backward, release()
//      refuses.)
//   2. Gradients are cleared first: they may be views into buckets.
//   3. The logger, which knows the reducer, then the reducer, whose destructor takes its hooks off the
//      parameters' gradient accumulators. Graphs of earlier forwards may still exist; their backward is
//      refused, because the number of the generation that they recorded is an old one.
//   4. When the group is connected, a new reducer with the layout that the next forward would have used. The
//      layout decides in which order Gloo adds the ranks' values, so it is part of the results' bits.
//      Normally c10d derives it in the second forward, from the order of gradients in the first backward, and
//      tells it to the others. A rank that is one step behind has not done so yet, so all derive it here by
//      themselves.

void DdpState::release() {
  if (torch::autograd::get_current_graph_task_id() != -1 || join || !synchronise) {
    throw UsageError(
        describe(group) +
        ": its process group cannot be formed again inside of backward, no_sync() or join(): let "
        "the error leave them first");
  }
  for (const auto& entry : parameters) clear_gradient(entry.tensor);
  if (reducer != nullptr) kept_layout = reducer->layout_of_next_forward(options, backward_is_unfinished);
  logger.reset();
  reducer.reset();
  if (hook_runner != nullptr) hook_runner->backward_begins();
  watch = parallel::StragglerDetector(group, watch.options());
  forward.reset();
  forwards_.clear();
  sent_.clear();
  backward_runs = backward_is_recorded = backward_is_unfinished = false;
  // Those of the last step are rank 0's already on all ranks.
  buffers_are_due = !sends_buffers_after;
  mean->set_divisor(group.size());
}

void DdpState::reseat() {
  if (group.size() == 1) return;
  check_agreement("");
  if (has_own_hook) parallel::check_same_hook(group, hook_runner->hook().name());
  install_reducer(*kept_layout);
}

void DdpState::check_agreement(const std::string& complaint) const {
  parallel::check_agreement(group, {.parameters = module_parameters,
                                    .buffers = module_buffers,
                                    .options = parallel::summary_of(options),
                                    .complaint = complaint,
                                    .buckets_follow_strides = true});
}

}  // namespace lockstep
