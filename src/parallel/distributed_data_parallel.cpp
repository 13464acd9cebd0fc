#include "lockstep/parallel/distributed_data_parallel.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/core.h>

#include <torch/csrc/autograd/graph_task.h>
#include <algorithm>
#include <limits>
#include <sstream>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <utility>

#include "comm/errors.hpp"
#include "comm/set_up_record.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "parallel/ddp_state.hpp"
#include "parallel/join.hpp"
#include "parallel/module_agreement.hpp"
#include "parallel/output_node.hpp"

namespace lockstep {
namespace {

std::vector<NamedTensor> trained(const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> result;
  std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(result),
               [](const NamedTensor& entry) { return entry.tensor.requires_grad(); });
  return result;
}

/// The names for the numbers in "Parameter indices which did not receive grad for rank 0: 2 3".
std::string unused_parameters(const DdpState& state, const std::string& complaint) {
  const auto heading = complaint.find("Parameter indices which did not receive grad");
  const auto colon = heading == std::string::npos ? heading : complaint.find(':', heading);
  if (colon == std::string::npos) return "";
  std::istringstream numbers(complaint.substr(colon + 1));
  std::string names;
  for (std::size_t index = 0; numbers >> index && index < state.parameters.size();) {
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", state.parameters[index].name);
  }
  return names;
}

/// Explains an exception of the reducer in a forward; call it in a handler.
[[noreturn]] void explain(const DdpState& state) {
  const std::string who = describe(state.group);
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const c10::DistError&) {
    comm::rethrow_as_communication_error(who + ": a forward failed");
  } catch (const c10::Error& error) {
    const std::string complaint = error.what_without_backtrace();
    if (state.backward_runs) {
      throw Error(
          who +
          ": the last backward ended with an exception, and its gradients were not averaged. Ranks may have "
          "ended at different gradients: clear the gradients and wrap the module again, on every rank");
    }
    const std::string names = unused_parameters(state, complaint);
    if (names.empty()) throw Error(fmt::format("{}: {}", who, complaint));
    throw Error(
        who + ": the last backward left these parameters without a gradient: " + names +
        ". If the forward does not always use them, set find_unused_parameters; if it never does, do not "
        "register them, or freeze them with requires_grad_(false)");
  } catch (const std::exception&) {
    comm::rethrow_as_communication_error(who + ": a forward failed");
  }
}

}  // namespace

DistributedDataParallelBase::DistributedDataParallelBase(std::vector<NamedTensor> parameters,
                                                         std::vector<NamedTensor> buffers,
                                                         const ProcessGroup& group,
                                                         const DistributedDataParallelOptions& options)
    : state_(std::make_shared<DdpState>(parameters, trained(parallel::without_repeats(parameters)), group,
                                        options)) {
  state_->module_buffers = buffers;
  const std::string complaint = parallel::complaint_about(state_->parameters, group, options);
  if (group.size() == 1) {
    if (!complaint.empty()) throw UsageError(complaint);
    return;
  }
  state_->has_buffers = !buffers.empty();
  if (comm::is_newcomer(group)) {
    // It compares itself with the others when it meets them: DdpState::reseat().
    if (!complaint.empty()) throw UsageError(complaint);
  } else {
    const comm::LeftOutByNewcomers left_out(group);
    state_->check_agreement(complaint);
    // Frozen parameters too: every rank must start from the same values.
    state_->broadcast(parallel::without_repeats(parameters), 0);
    if (options.broadcast_buffers) state_->broadcast(parallel::without_repeats(buffers), 0);
  }
  comm::observe(group, state_);
  state_->install_reducer(parallel::first_buckets(state_->parameters, options));
  if (options.non_finite_gradients == NonFiniteGradients::ignore) return;
  state_->require_hook_runner().set_check(
      std::make_unique<parallel::GradientCheck>(group, state_->parameters, options.non_finite_gradients));
}

BucketLayout DistributedDataParallelBase::bucket_layout() {
  if (state_->reducer == nullptr) return {};
  try {
    state_->rebuild_buckets();  // As the next forward would.
  } catch (const std::exception&) {
    explain(*state_);
  }
  std::unordered_map<const void*, std::size_t> numbers;
  for (const auto& entry : state_->parameters)
    numbers.emplace(entry.tensor.unsafeGetTensorImpl(), numbers.size());
  BucketLayout layout;
  for (const auto& bucket : state_->reducer->get_grad_buckets()) {
    auto& members = layout.emplace_back();
    for (const auto& tensor : bucket.getParameters())
      members.push_back(numbers.at(tensor.unsafeGetTensorImpl()));
  }
  return layout;
}

void DistributedDataParallelBase::set_bucket_layout(const BucketLayout& layout) {
  if (state_->reducer == nullptr) return;
  parallel::check_layout(layout, state_->parameters.size());
  state_->install_reducer(layout);
}

void DistributedDataParallelBase::register_comm_hook(std::shared_ptr<CommHook> hook) {
  if (hook == nullptr) throw UsageError("register_comm_hook: expected a hook, but got none");
  if (!state_->options.sparse_parameters.empty()) {
    throw UsageError("register_comm_hook: hooks see dense gradients only, but sparse_parameters names '" +
                     state_->options.sparse_parameters.front() + "'");
  }
  if (state_->reducer == nullptr) return;
  if (!comm::is_newcomer(state_->group)) {
    const comm::LeftOutByNewcomers left_out(state_->group);
    parallel::check_same_hook(state_->group, hook->name());
  }
  state_->require_hook_runner().set_hook(std::move(hook));
  state_->has_own_hook = true;
}

bool DistributedDataParallelBase::sends_buffers() const {
  return state_->reducer != nullptr && state_->has_buffers && state_->options.broadcast_buffers &&
         state_->buffers_are_due;
}

void DistributedDataParallelBase::apply_in_backward(ApplyGradients apply) {
  if (const auto why = parallel::complaint_about_applying(state_->options); !why.empty())
    throw UsageError("applying gradients in backward: " + why);
  if (state_->reducer == nullptr) return;
  state_->require_hook_runner().set_apply(std::move(apply));
  state_->applies_in_backward = true;
  state_->reducer->set_optimizer_in_backward();
}

DdpStatistics DistributedDataParallelBase::statistics() const {
  DdpStatistics result;
  for (const auto& entry : state_->parameters) result.parameters += entry.tensor.numel();
  if (state_->reducer == nullptr) return result;
  result.bucket_bytes = state_->logger->get_bucket_sizes();
  for (const auto bytes : result.bucket_bytes) result.gradient_bytes += bytes;
  result.buckets_rebuilt = state_->reducer->has_rebuilt_buckets();
  state_->watch.add_to(result);
  return result;
}

bool DistributedDataParallelBase::watches_parameters() const {
  return state_->reducer != nullptr && at::GradMode::is_enabled();
}

void DistributedDataParallelBase::before_forward(const std::vector<at::Tensor>& parameters,
                                                 const parallel::NamesOfParameters& names,
                                                 const std::vector<NamedTensor>& buffers) {
  process_heartbeat().working("forward");
  DdpState& state = *state_;
  state.forward.emplace("forward");
  if (state.reducer == nullptr) {
    if (state.group.size() == 1) return;
    throw Error(describe(state.group) + ": new buckets could not be made before: nothing averages gradients");
  }
  if (state.applies_in_backward && !state.synchronise && at::GradMode::is_enabled()) {
    throw UsageError(describe(state.group) +
                     ": gradients that are applied in backward cannot be accumulated: no_sync() needs a step "
                     "after backward");
  }
  state.forget_failed_recording();
  if (watches_parameters()) state.parameter_watch.check(parameters, names, *state.reducer);
  try {
    if (state.synchronises()) state.watch.step(state.reducer->times(), !state.join);
    if (state.join) parallel::meet_joined_ranks(state);
    if (at::GradMode::is_enabled()) state.rebuild_buckets();
    if (state.synchronises()) state.reducer->prepare_for_forward();
  } catch (const std::exception&) {
    explain(state);
  }
  if (torch::autograd::get_current_graph_task_id() == -1) state.backward_runs = false;
  if (!buffers.empty())
    state.broadcast_buffers(parallel::without_repeats(buffers), state.join ? state.join->authority : 0);
  else if (state.sends_buffers_after)
    state.note_buffers(parallel::without_repeats(state.module_buffers));
}

std::vector<at::Tensor> DistributedDataParallelBase::after_forward(std::vector<at::Tensor> outputs) {
  DdpState& state = *state_;
  state.forward.reset();
  if (state.reducer == nullptr) return outputs;
  const bool is_synchronised = state.synchronises();
  state.buffers_are_due = is_synchronised && !state.sends_buffers_after;
  if (is_synchronised) {
    try {
      state.expect_gradients(outputs);
    } catch (const std::exception&) {
      explain(state);
    }
  }
  if (state.searches_unused() || state.learns_graph())
    outputs = parallel::through_output_node(state_, outputs);
  if (at::GradMode::is_enabled()) state.watch_backward(outputs, is_synchronised);
  // The graph has saved buffers by now.
  const bool sends_buffers =
      state.sends_buffers_after && state.has_buffers && state.options.broadcast_buffers;
  if (is_synchronised && sends_buffers && !state.join)
    state.broadcast_buffers(parallel::without_repeats(state.module_buffers), 0);
  return outputs;
}

void DistributedDataParallelBase::join_after(const std::function<void()>& body, const JoinOptions& options,
                                             const std::function<std::vector<NamedTensor>()>& buffers,
                                             const std::function<std::vector<NamedTensor>()>& parameters) {
  if (state_->reducer == nullptr) return body();
  parallel::run_joined(*state_, body, options, buffers, parameters);
}

void DistributedDataParallelBase::zero_grad(bool set_to_none) {
  for (const auto& entry : state_->parameters) clear_gradient(entry.tensor, set_to_none);
}

void clear_gradient(const at::Tensor& parameter, bool set_to_none) {
  at::Tensor& gradient = parameter.mutable_grad();
  if (!gradient.defined()) return;
  if (set_to_none) {
    gradient.reset();
  } else {
    const at::NoGradGuard no_grad;
    gradient.zero_();
  }
}

const std::vector<NamedTensor>& DistributedDataParallelBase::parameters() const { return state_->parameters; }
const std::vector<NamedTensor>& DistributedDataParallelBase::buffers() const {
  return state_->module_buffers;
}
const ProcessGroup& DistributedDataParallelBase::process_group() const { return state_->group; }
const DistributedDataParallelOptions& DistributedDataParallelBase::options() const { return state_->options; }

DistributedDataParallelBase::NoSync::NoSync(DistributedDataParallelBase& ddp)
    : state_(ddp.state_), before_(ddp.state_->synchronise) {
  state_->synchronise = false;
}

DistributedDataParallelBase::NoSync::~NoSync() { state_->synchronise = before_; }

}  // namespace lockstep
