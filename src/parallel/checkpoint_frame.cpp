#include "parallel/checkpoint_frame.hpp"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/graph_task.h>

#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

class RunningScope {
 public:
  explicit RunningScope(RunningCheckpoint next)
      : before_(std::exchange(RunningCheckpoint::current(), std::move(next))) {}
  ~RunningScope() { RunningCheckpoint::current() = std::move(before_); }
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  RunningCheckpoint before_;
};

bool is_parameter(const at::Tensor& tensor) { return tensor.is_leaf() && tensor.requires_grad(); }

/// The parameter that a saved tensor is, or is a view of (a linear layer saves its weight transposed);
/// otherwise undefined.
at::Tensor parameter_of(const at::Tensor& tensor) {
  if (is_parameter(tensor)) return tensor;
  if (!tensor.is_view()) return {};
  const at::Tensor base(tensor._base());
  return is_parameter(base) ? base : at::Tensor();
}

std::string description(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", at::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

}  // namespace

RunningCheckpoint& RunningCheckpoint::current() noexcept {
  thread_local RunningCheckpoint running;
  return running;
}

CheckpointFrame::CheckpointFrame(std::string name, std::function<void()> recompute,
                                 const std::vector<at::Tensor>& inputs)
    : name_(std::move(name)), recompute_(std::move(recompute)) {
  for (const auto& input : inputs) inputs_.emplace_back(input);
}

std::size_t CheckpointFrame::drop(const at::Tensor& tensor) {
  Saved saved{.sizes = tensor.sizes().vec(),
              .dtype = tensor.scalar_type(),
              .parameter = parameter_of(tensor),
              .version = 0,
              .by_reference = is_parameter(tensor),
              .memory = MemoryVersion(tensor)};
  if (saved.parameter.defined()) saved.version = saved.parameter._version();
  saved_.push_back(std::move(saved));
  return saved_.size() - 1;
}

void CheckpointFrame::keep(const at::Tensor& tensor) {
  const std::size_t number = values_.size();
  if (number >= saved_.size()) differs(fmt::format("more than {} tensors", saved_.size()));
  const Saved& saved = saved_[number];
  if (tensor.sizes() != at::IntArrayRef(saved.sizes) || tensor.scalar_type() != saved.dtype) {
    differs(fmt::format("{} as tensor {}, which was {} [{}]", description(tensor), number,
                        at::toString(saved.dtype), fmt::join(saved.sizes, ", ")));
  }
  // A tensor in the same memory was not computed by the function, but given to it.
  if (saved.memory.is_that_of(tensor) && saved.memory.has_changed() &&
      saved.memory.now() == versions_before_.at(number)) {
    changed(saved.parameter.defined() ? saved.parameter : tensor);
  }
  values_.push_back(saved.by_reference ? at::Tensor() : tensor.detach());
}

at::Tensor CheckpointFrame::take(std::size_t number) {
  if (first_forward_runs_) {
    throw UsageError("checkpoint: " + name_ +
                     " runs a backward through itself. Leave the part that does outside of the checkpoint");
  }
  const std::lock_guard lock(mutex_);
  const Saved& saved = saved_.at(number);
  check_unchanged(saved);
  if (saved.by_reference) return saved.parameter;
  const int backward = torch::autograd::get_current_graph_task_id();
  if (backward != backward_ || number >= values_.size() || !values_[number].defined()) compute_again();
  backward_ = backward;
  // Each backward asks for each tensor once, so that it is freed after use.
  return std::move(values_[number]);
}

void CheckpointFrame::check_unchanged(const Saved& saved) const {
  if (saved.parameter.defined() && saved.parameter._version() != saved.version) changed(saved.parameter);
}

void CheckpointFrame::compute_again() {
  values_.clear();
  for (const auto& input : inputs_)
    if (input.memory.has_changed()) changed(input.tensor);
  versions_before_.clear();
  for (const auto& saved : saved_) versions_before_.push_back(saved.memory.now());
  const RunningScope running({.frame = shared_from_this(), .again = true});
  const GeneratorScope generators(generators_);
  const AutocastScope autocast(autocast_);
  const at::AutoGradMode gradients(true);
  recompute_();
  if (values_.size() != saved_.size())
    differs(fmt::format("{} tensors instead of {}", values_.size(), saved_.size()));
}

void CheckpointFrame::changed(const at::Tensor& tensor) const {
  if (is_parameter(tensor)) {
    throw Error(
        fmt::format("backward: a parameter {} of {} was changed in place after its forward, "
                    "whose activations are to be computed again with it",
                    description(tensor), name_));
  }
  throw Error(fmt::format(
      "backward: the tensor {} that {} was called with was changed in place after its forward, whose "
      "activations are to be computed again from it. Give it a copy, or change a copy",
      description(tensor), name_));
}

void CheckpointFrame::differs(const std::string& how) const {
  throw Error("backward: the recomputation of " + name_ + " saved " + how +
              ". A checkpointed function must compute the same in forward and in backward");
}

}  // namespace lockstep::parallel
