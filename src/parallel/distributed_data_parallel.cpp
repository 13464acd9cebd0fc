#include "lockstep/parallel/distributed_data_parallel.hpp"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_set>

#include "../comm/c10d_handles.hpp"
#include "../comm/errors.hpp"
#include "../comm/shared_allocation.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/heartbeat.hpp"
#include "module_agreement.hpp"

namespace lockstep {
namespace {

constexpr std::size_t kBroadcastBucketBytes = 250U * 1024 * 1024;  // As PyTorch's DDP.

using Tensors = std::vector<at::Tensor>;

c10::intrusive_ptr<c10d::ProcessGroup> c10d_group(const ProcessGroup& group) {
  return comm::to_intrusive(group.c10d_process_group());
}

/// Keeps the first name of each tensor: tied weights are trained once.
std::vector<NamedTensor> without_repeats(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> result;
  std::unordered_set<const void*> seen;
  for (const auto& entry : tensors) {
    if (entry.tensor.defined() && seen.insert(entry.tensor.unsafeGetTensorImpl()).second)
      result.push_back(entry);
  }
  return result;
}

std::vector<NamedTensor> trained(const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> result;
  std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(result),
               [](const NamedTensor& entry) { return entry.tensor.requires_grad(); });
  return result;
}

Tensors tensors_of(const std::vector<NamedTensor>& named) {
  Tensors result;
  for (const auto& entry : named) result.push_back(entry.tensor);
  return result;
}

std::string describe(const ProcessGroup& group) {
  return "rank " + std::to_string(group.rank()) + " of " + std::to_string(group.size()) +
         ": DistributedDataParallel";
}

void broadcast_from_rank_zero(const ProcessGroup& group, const std::vector<NamedTensor>& named) {
  if (named.empty()) return;
  const at::NoGradGuard no_grad;
  Tensors values;
  for (const auto& entry : named) values.push_back(entry.tensor.detach());
  comm::translated([&] { c10d::broadcast_coalesced(c10d_group(group), values, kBroadcastBucketBytes, 0); },
                   [&] { return describe(group) + ": copying rank 0's values failed"; });
}

bool names_one_of(const std::vector<NamedTensor>& parameters, const std::string& name) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [&](const NamedTensor& entry) { return entry.name == name; });
}

/// What keeps these parameters from being trained, or "".
std::string complaint_about(const std::vector<NamedTensor>& parameters, const ProcessGroup& group,
                            const DistributedDataParallelOptions& options) {
  if (parameters.empty()) {
    return "DistributedDataParallel is not needed for a module without a parameter that requires a gradient";
  }
  if (!(options.bucket_cap_mb > 0)) return "bucket_cap_mb must be more than 0";
  for (const auto& entry : parameters) {
    if (entry.tensor.device() == group.device()) continue;
    return "parameter '" + entry.name + "' is on " + entry.tensor.device().str() +
           ", but the process group was made for " + group.device().str() +
           ": move the module to that device before wrapping it";
  }
  for (const auto& name : options.sparse_parameters) {
    if (!names_one_of(parameters, name)) {
      return "sparse_parameters names '" + name + "', which is no trained parameter of the module";
    }
  }
  return "";
}

/// The options on which all ranks must agree.
std::string summary_of(const DistributedDataParallelOptions& options) {
  std::ostringstream text;
  text << "bucket_cap_mb " << options.bucket_cap_mb << ", broadcast_buffers " << options.broadcast_buffers
       << ", find_unused_parameters " << options.find_unused_parameters << ", static_graph "
       << options.static_graph;
  return text.str();
}

std::vector<bool> sparse_flags(const std::vector<NamedTensor>& parameters,
                               const std::vector<std::string>& sparse) {
  std::vector<bool> flags;
  for (const auto& entry : parameters) {
    flags.push_back(std::find(sparse.begin(), sparse.end(), entry.name) != sparse.end());
  }
  return flags;
}

std::int64_t cap_of(const DistributedDataParallelOptions& options) {
  return std::max(std::int64_t{1}, static_cast<std::int64_t>(options.bucket_cap_mb * 1024 * 1024));
}

bool has_default_cap(const DistributedDataParallelOptions& options) {
  return options.bucket_cap_mb == DistributedDataParallelOptions{}.bucket_cap_mb;
}

std::int64_t first_cap_of(const DistributedDataParallelOptions& options) {
  return has_default_cap(options) ? std::int64_t{c10d::kDefaultFirstBucketBytes} : cap_of(options);
}

/// The same buckets as PyTorch's DDP makes: where the order of gradients is not yet known and they will be
/// rebuilt after the first iteration, one bucket for all; else buckets in reverse order of registration.
BucketLayout first_buckets(const std::vector<NamedTensor>& parameters,
                           const DistributedDataParallelOptions& options) {
  const bool rebuilt_later = options.static_graph || !options.find_unused_parameters;
  std::vector<std::size_t> limits{static_cast<std::size_t>(cap_of(options))};
  if (rebuilt_later) {
    limits = {static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())};
  } else if (has_default_cap(options)) {
    limits.insert(limits.begin(), static_cast<std::size_t>(first_cap_of(options)));
  }
  const auto sparse = sparse_flags(parameters, options.sparse_parameters);
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(tensors_of(parameters), limits, sparse));
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

std::shared_ptr<c10d::Reducer> make_reducer(const std::vector<NamedTensor>& parameters, BucketLayout buckets,
                                            const ProcessGroup& group,
                                            const DistributedDataParallelOptions& options) {
  const comm::SharedAllocation buckets_are_shared(group);
  std::unordered_map<std::size_t, std::string> names;
  for (std::size_t i = 0; i < parameters.size(); ++i) names.emplace(i, parameters[i].name);
  return std::make_shared<c10d::Reducer>(tensors_of(parameters), std::move(buckets), c10d_group(group),
                                         sparse_flags(parameters, options.sparse_parameters), cap_of(options),
                                         options.find_unused_parameters, options.gradient_as_bucket_view,
                                         std::move(names), first_cap_of(options), false, false,
                                         std::vector<std::int64_t>{});
}

void check_layout(const BucketLayout& layout, std::size_t parameters) {
  std::vector<std::size_t> numbers;
  for (const auto& bucket : layout) numbers.insert(numbers.end(), bucket.begin(), bucket.end());
  std::sort(numbers.begin(), numbers.end());
  bool each_once = numbers.size() == parameters;
  for (std::size_t i = 0; each_once && i < parameters; ++i) each_once = numbers[i] == i;
  if (each_once) return;
  throw UsageError("set_bucket_layout: the layout must name each of the " + std::to_string(parameters) +
                   " trained parameters once");
}

}  // namespace

struct DdpState {
  DdpState(std::vector<NamedTensor> trained_parameters, const ProcessGroup& ddp_group,
           const DistributedDataParallelOptions& ddp_options)
      : parameters(std::move(trained_parameters)), group(ddp_group), options(ddp_options) {}

  void install_reducer(BucketLayout buckets);

  bool synchronises() const { return reducer != nullptr && synchronise && at::GradMode::is_enabled(); }

  std::vector<NamedTensor> parameters;
  ProcessGroup group;
  DistributedDataParallelOptions options;
  std::shared_ptr<c10d::Reducer> reducer;  // Null in a group of one.
  // The reducer calls it without asking whether there is one, when the set of unused parameters changes.
  std::shared_ptr<c10d::Logger> logger;
  bool has_buffers = false;
  bool synchronise = true;      // Off inside no_sync().
  bool buffers_are_due = true;  // The last forward was synchronised, so buffers may have drifted since.
  bool delayed_reduce_is_queued = false;  // Static graph: the first backward reduces at its end.
};

void DdpState::install_reducer(BucketLayout buckets) {
  // The one before gives its hooks back first.
  logger.reset();
  reducer.reset();
  delayed_reduce_is_queued = false;
  reducer = make_reducer(parameters, std::move(buckets), group, options);
  logger = std::make_shared<c10d::Logger>(reducer);
  reducer->set_logger(logger);
  if (options.static_graph) reducer->set_static_graph();
}

namespace {

/// Keeps the state alive for as long as a graph needs it, also when the wrapper is gone before backward.
struct StateHolder : torch::CustomClassHolder {
  explicit StateHolder(std::shared_ptr<DdpState> held) : state(std::move(held)) {}
  std::shared_ptr<DdpState> state;
};

/// All outputs of a forward go through this one node. When the loss uses some of them only, the others'
/// parameters still see an (undefined) gradient, which the reducer takes as "unused"; and in the first
/// backward of a static graph it queues the reduction of all parameters.
struct OutputNode : torch::autograd::Function<OutputNode> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const std::shared_ptr<DdpState>& state,
                                                at::TensorList outputs) {
    context->set_materialize_grads(false);
    context->saved_data["state"] = c10::IValue::make_capsule(c10::make_intrusive<StateHolder>(state));
    Tensors copies;
    for (const auto& output : outputs) copies.push_back(output.clone());
    return copies;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto capsule = context->saved_data["state"].toCapsule();
    const auto state = static_cast<const StateHolder*>(capsule.get())->state;
    if (state->options.static_graph && !state->delayed_reduce_is_queued) {
      state->delayed_reduce_is_queued = true;
      torch::autograd::Engine::get_default_engine().queue_callback(
          [state] { state->reducer->delay_all_reduce(); });
    }
    torch::autograd::variable_list result{at::Tensor()};
    result.insert(result.end(), gradients.begin(), gradients.end());
    return result;
  }
};

/// Sends the tensors that have a history through the node and leaves the others as they are.
Tensors through_output_node(const std::shared_ptr<DdpState>& state, const Tensors& outputs) {
  Tensors with_history;
  for (const auto& output : outputs) {
    if (output.grad_fn()) with_history.push_back(output);
  }
  if (with_history.empty()) return outputs;
  const Tensors passed = OutputNode::apply(state, at::TensorList(with_history));
  Tensors result = outputs;
  auto next = passed.begin();
  for (auto& output : result) {
    if (output.grad_fn()) output = *next++;
  }
  return result;
}

/// The names behind the numbers in "Parameter indices which did not receive grad for rank 0: 2 3".
std::string unused_parameters(const DdpState& state, const std::string& complaint) {
  const auto heading = complaint.find("Parameter indices which did not receive grad");
  const auto colon = heading == std::string::npos ? heading : complaint.find(':', heading);
  if (colon == std::string::npos) return "";
  std::istringstream numbers(complaint.substr(colon + 1));
  std::string names;
  for (std::size_t index = 0; numbers >> index && index < state.parameters.size();) {
    names += (names.empty() ? "'" : ", '") + state.parameters[index].name + "'";
  }
  return names;
}

/// Puts what the reducer throws in a forward into words; to be called in a handler.
[[noreturn]] void explain(const DdpState& state) {
  const std::string who = describe(state.group);
  try {
    throw;
  } catch (const c10::DistError&) {
    comm::rethrow_as_communication_error(who + ": a forward failed");
  } catch (const c10::Error& error) {
    const std::string complaint = error.what_without_backtrace();
    const std::string names = unused_parameters(state, complaint);
    if (names.empty()) throw Error(who + ": " + complaint);
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
    : state_(std::make_shared<DdpState>(trained(without_repeats(parameters)), group, options)) {
  const std::string complaint = complaint_about(state_->parameters, group, options);
  if (group.size() == 1) {
    if (!complaint.empty()) throw UsageError(complaint);
    return;
  }
  parallel::check_agreement(group, {parameters, buffers, summary_of(options), complaint});
  state_->has_buffers = !buffers.empty();
  // Frozen parameters too: every rank must start from the same values.
  broadcast_from_rank_zero(group, without_repeats(parameters));
  if (options.broadcast_buffers) broadcast_from_rank_zero(group, without_repeats(buffers));
  state_->install_reducer(first_buckets(state_->parameters, options));
}

BucketLayout DistributedDataParallelBase::bucket_layout() {
  if (state_->reducer == nullptr) return {};
  try {
    const comm::SharedAllocation buckets_are_shared(state_->group);
    state_->reducer->rebuild_buckets();  // As the next forward would.
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
  check_layout(layout, state_->parameters.size());
  state_->install_reducer(layout);
}

bool DistributedDataParallelBase::sends_buffers() const {
  return state_->reducer != nullptr && state_->has_buffers && state_->options.broadcast_buffers &&
         state_->buffers_are_due;
}

void DistributedDataParallelBase::before_forward(const std::vector<NamedTensor>& buffers) {
  process_heartbeat().working("forward");
  if (state_->reducer == nullptr) return;
  try {
    const comm::SharedAllocation buckets_are_shared(state_->group);
    if (state_->synchronises()) state_->reducer->prepare_for_forward();
    if (at::GradMode::is_enabled()) state_->reducer->rebuild_buckets();
  } catch (const std::exception&) {
    explain(*state_);
  }
  broadcast_from_rank_zero(state_->group, without_repeats(buffers));
}

std::vector<at::Tensor> DistributedDataParallelBase::after_forward(std::vector<at::Tensor> outputs) {
  DdpState& state = *state_;
  if (state.reducer == nullptr) return outputs;
  const bool searches = state.options.find_unused_parameters && !state.options.static_graph;
  state.buffers_are_due = state.synchronises();
  if (state.synchronises()) {
    try {
      state.reducer->prepare_for_backward(searches ? outputs : Tensors{});
    } catch (const std::exception&) {
      explain(state);
    }
  }
  const bool first_of_static_graph = state.options.static_graph && !state.delayed_reduce_is_queued;
  return searches || first_of_static_graph ? through_output_node(state_, outputs) : outputs;
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
const ProcessGroup& DistributedDataParallelBase::process_group() const { return state_->group; }
const DistributedDataParallelOptions& DistributedDataParallelBase::options() const { return state_->options; }

DistributedDataParallelBase::NoSync::NoSync(DistributedDataParallelBase& ddp)
    : state_(ddp.state_), before_(ddp.state_->synchronise) {
  state_->synchronise = false;
}

DistributedDataParallelBase::NoSync::~NoSync() { state_->synchronise = before_; }

}  // namespace lockstep
