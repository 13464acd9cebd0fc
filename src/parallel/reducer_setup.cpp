#include <ATen/core/grad_mode.h>
#include <ATen/ops/clone.h>
#include <fmt/core.h>

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <algorithm>
#include <limits>
#include <utility>

#include "comm/c10d_handles.hpp"
#include "comm/diagnostics/op_meta.hpp"
#include "comm/transport/shared_allocation.hpp"
#include "lockstep/core/error.hpp"
#include "parallel/fsdp/sharded_parameter_registry.hpp"
#include "parallel/reducer_setup.hpp"

namespace lockstep::parallel {

/// Has the same backends, so that c10d operations that are dispatched by device find them here too.
LabeledProcessGroup::LabeledProcessGroup(const lockstep::ProcessGroup& group)
    : c10d::ProcessGroup(group.rank(), group.size()), inner_(comm::to_intrusive(group.c10d_process_group())) {
  setBoundDeviceId(inner_->getBoundDeviceId());
  for (const auto& device : inner_->getDeviceTypes()) {
    const auto backend = inner_->getBackend(device.type());
    setBackend(device.type(), strToBackendType(backend->getBackendName()), backend);
  }
  setDefaultBackend(inner_->getBackendType());
}

/// A tensor of integers is not a gradient: it is the map of unused parameters, which the reducer sends last.
c10::intrusive_ptr<c10d::Work> LabeledProcessGroup::allreduce(std::vector<at::Tensor>& tensors,
                                                              const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors.front().scalar_type() == at::kInt)
    return inner_->allreduce(tensors, options);
  const comm::OperationLabel label(fmt::format("bucket {}", next_++));
  return inner_->allreduce(tensors, options);
}

namespace {

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> result;
  for (const auto& entry : named) result.push_back(entry.tensor);
  return result;
}

bool names_one_of(const std::vector<NamedTensor>& parameters, const std::string& name) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [&](const NamedTensor& entry) { return entry.name == name; });
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

}  // namespace

std::string complaint_about(const std::vector<NamedTensor>& parameters, const ProcessGroup& group,
                            const DistributedDataParallelOptions& options) {
  if (parameters.empty()) {
    return "DistributedDataParallel is not needed for a module without a parameter that requires a gradient";
  }
  if (!(options.bucket_cap_mb > 0)) return "bucket_cap_mb must be more than 0";
  for (const auto& entry : parameters) {
    if (parallel::ShardedParameterRegistry::contain(entry.tensor)) {
      return "parameter '" + entry.name +
             "' is fully sharded: DistributedDataParallel needs a module that is not fully sharded";
    }
    if (entry.tensor.device() == group.device()) continue;
    return fmt::format(
        "parameter '{}' is on {}, but the process group was made for {}: move the module to that device "
        "before wrapping it",
        entry.name, entry.tensor.device().str(), group.device().str());
  }
  for (const auto& name : options.sparse_parameters) {
    if (!names_one_of(parameters, name)) {
      return "sparse_parameters names '" + name + "', which is not a trained parameter of the module";
    }
  }
  if (!options.sparse_parameters.empty() && options.non_finite_gradients != NonFiniteGradients::ignore)
    return "non_finite_gradients looks at dense gradients only, and there are sparse_parameters";
  return "";
}

std::string complaint_about_applying(const DistributedDataParallelOptions& options) {
  if (!options.sparse_parameters.empty()) return "there are sparse_parameters";
  if (options.find_unused_parameters || options.static_graph) {
    return "find_unused_parameters and static_graph allow parameters without a gradient, which would be "
           "stepped with a gradient of zero";
  }
  if (options.non_finite_gradients == NonFiniteGradients::skip) {
    return "whether a step is skipped is known when backward has ended, after the first parameters have been "
           "stepped";
  }
  return "";
}

std::string summary_of(const DistributedDataParallelOptions& options) {
  return fmt::format(
      "bucket_cap_mb {:g}, broadcast_buffers {:d}, find_unused_parameters {:d}, static_graph {:d}, "
      "non_finite_gradients {}, stragglers.every {}",
      options.bucket_cap_mb, options.broadcast_buffers, options.find_unused_parameters, options.static_graph,
      static_cast<int>(options.non_finite_gradients), options.stragglers.every);
}

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

/// As c10d's rebuild_buckets(), which broadcasts what it finds.
BucketLayout TimedReducer::layout_of_next_forward(const DistributedDataParallelOptions& options,
                                                  bool has_failed) const {
  const bool rebuilds = should_rebuild_buckets() && !has_failed && rebuilt_params_.size() == params_.size();
  if (rebuilds) {
    const std::vector<std::size_t> limits{static_cast<std::size_t>(first_cap_of(options)),
                                          static_cast<std::size_t>(cap_of(options))};
    return std::get<0>(c10d::compute_bucket_assignment_by_size(
        rebuilt_params_, limits, expect_sparse_gradients_, rebuilt_param_indices_));
  }
  BucketLayout layout;
  for (const auto& bucket : buckets_) layout.push_back(bucket.variable_indices);
  return layout;
}

void TimedReducer::attach_own_hooks() {
  remove_autograd_hooks();
  for (std::size_t number = 0; number < params_.size(); ++number) attach(number);
}

void TimedReducer::attach(std::size_t number) {
  using torch::autograd::variable_list;
  auto accumulator = torch::autograd::impl::grad_accumulator(params_[number]);
  auto hook = std::make_unique<torch::autograd::utils::LambdaPostHook>(
      [this, number](const variable_list& outputs, const variable_list&) {
        gradient_arrived(number);
        return outputs;
      });
  hooks_.emplace_back(accumulator->add_post_hook(std::move(hook)), accumulator);
  if (find_unused_parameters_) gradAccToVariableMap_[accumulator.get()] = number;
  grad_accumulators_[number] = std::move(accumulator);
}

void TimedReducer::follow(std::size_t number) {
  if (torch::autograd::impl::try_get_grad_accumulator(params_[number]) == grad_accumulators_[number]) return;
  const std::lock_guard lock(mutex_);
  gradAccToVariableMap_.erase(grad_accumulators_[number].get());
  const auto before = std::move(grad_accumulators_[number]);
  attach(number);
  // The graph of an earlier forward may still use the accumulator of its time, and needs its hook.
  std::erase_if(hooks_, [&](const auto& hook) {
    const bool is_unused = hook.second == before && hook.second.use_count() == 2;
    if (is_unused) before->del_post_hook(hook.first);
    return is_unused;
  });
}

[[noreturn]] void TimedReducer::explain_in_backward(const std::string& complaint,
                                                    const std::string& name) const {
  std::string cause = complaint;
  if (complaint.find("sparse gradient to be defined") != std::string::npos) {
    cause =
        "a parameter of sparse_parameters got no gradient in this backward. Such a parameter must be used in "
        "every "
        "forward, also with find_unused_parameters";
  } else if (complaint.find("ready only once") != std::string::npos) {
    cause = fmt::format(
        "parameter '{}' got a gradient twice in one step: it is used by a backward inside the backward, or "
        "outside of "
        "the module's forward, which found it unused. Use it inside forward, or set static_graph if every "
        "step uses "
        "the same parameters",
        name);
  }
  throw Error(fmt::format("rank {} of {}: DistributedDataParallel: {}", process_group_->getRank(),
                          process_group_->getSize(), cause));
}

/// The reducer divides a sparse gradient in place, whose values may be those of the gradient that came from
/// above, and so of other parameters' gradients: it gets a copy.
void TimedReducer::gradient_arrived(std::size_t number) {
  at::Tensor& gradient = params_[number].mutable_grad();
  if (expect_sparse_gradients_[number] && gradient.defined()) {
    const at::NoGradGuard no_grad;
    gradient = gradient.clone();
  }
  try {
    autograd_hook(number);
  } catch (const c10::DistError&) {
    throw;
  } catch (const c10::Error& error) {
    explain_in_backward(error.what_without_backtrace(), names_.at(number));
  }
}

std::optional<StepTimes> TimedReducer::times() const {
  using Event = c10d::Timer::Event;
  if (timer_ == nullptr || !params_.front().is_cpu()) return std::nullopt;
  const auto forward = timer_->measureDifference(Event::kForwardStart, Event::kBackwardComputeStart);
  const auto backward = timer_->measureDifference(Event::kBackwardComputeStart, Event::kBackwardComputeEnd);
  const auto sent = timer_->measureDifference(Event::kBackwardCommStart, Event::kBackwardCommEnd);
  const auto hidden = timer_->measureDifference(Event::kBackwardCommStart, Event::kBackwardComputeEnd);
  if (!forward || !backward || !sent || !hidden) return std::nullopt;
  return StepTimes{*forward, *backward, *sent, std::min(*hidden, *sent)};
}

std::shared_ptr<TimedReducer> make_reducer(const std::vector<NamedTensor>& parameters, BucketLayout buckets,
                                           const ProcessGroup& group,
                                           const DistributedDataParallelOptions& options) {
  const comm::SharedAllocation buckets_are_shared(group);
  std::unordered_map<std::size_t, std::string> names;
  for (std::size_t i = 0; i < parameters.size(); ++i) names.emplace(i, parameters[i].name);
  auto reducer = std::make_shared<TimedReducer>(
      parameters, tensors_of(parameters), std::move(buckets), c10::make_intrusive<LabeledProcessGroup>(group),
      sparse_flags(parameters, options.sparse_parameters), cap_of(options), options.find_unused_parameters,
      options.gradient_as_bucket_view, std::move(names), first_cap_of(options), false, false,
      std::vector<std::int64_t>{});
  // Costs five clock reads per step; on a GPU it would be five events, which are not read.
  if (parameters.front().tensor.is_cpu()) reducer->set_ddp_runtime_logging_sample_rate(1);
  return reducer;
}

void check_layout(const BucketLayout& layout, std::size_t parameters) {
  std::vector<std::size_t> numbers;
  for (const auto& bucket : layout) numbers.insert(numbers.end(), bucket.begin(), bucket.end());
  std::sort(numbers.begin(), numbers.end());
  bool each_once = numbers.size() == parameters;
  for (std::size_t i = 0; each_once && i < parameters; ++i) each_once = numbers[i] == i;
  if (each_once) return;
  throw UsageError(fmt::format(
      "set_bucket_layout: the layout must name each of the {} trained parameters once", parameters));
}

}  // namespace lockstep::parallel
