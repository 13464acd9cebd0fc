#include "lockstep/parallel/activation_checkpoint.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/variable.h>

#include <array>
#include <mutex>
#include <optional>
#include <typeinfo>
#include <vector>

#include "lockstep/core/error.hpp"

namespace lockstep::parallel {

/// The states of random generators at one moment: the CPU's, and the current CUDA device's if the process
/// uses one.
class GeneratorStates {
 public:
  GeneratorStates() {
    add(at::detail::getDefaultCPUGenerator());
    if (!at::globalContext().hasCUDA()) return;
    const auto device = at::detail::getCUDAHooks().getCurrentDevice();
    if (at::detail::getCUDAHooks().hasPrimaryContext(device))
      add(at::globalContext().defaultGenerator(at::Device(at::kCUDA, device)));
  }

  void set() const {
    for (auto [generator, state] : states_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

  /// The current states of the same generators.
  GeneratorStates now() const {
    GeneratorStates present(*this);
    present.states_.clear();
    for (const auto& [generator, state] : states_) present.add(generator);
    return present;
  }

 private:
  void add(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    states_.emplace_back(generator, generator.get_state());
  }

  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

/// The current autocast state of this thread.
class AutocastState {
 public:
  void set() const {
    for (const auto& [device, on, dtype] : devices_) {
      at::autocast::set_autocast_enabled(device, on);
      at::autocast::set_autocast_dtype(device, dtype);
    }
    at::autocast::set_autocast_cache_enabled(cache_);
  }

 private:
  struct Device {
    at::DeviceType type;
    bool on;
    at::ScalarType dtype;
  };
  static Device state_of(at::DeviceType type) {
    return {type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)};
  }
  std::array<Device, 2> devices_{state_of(at::kCPU), state_of(at::kCUDA)};
  bool cache_ = at::autocast::is_autocast_cache_enabled();
};

/// The memory of a tensor and how often it had been changed in place, without keeping it.
class MemoryVersion {
 public:
  explicit MemoryVersion(const at::Tensor& tensor) {
    counter_ = torch::autograd::impl::version_counter(tensor);
    version_ = now();
    if (tensor.has_storage()) storage_.emplace(tensor.storage().getWeakStorageImpl());
  }

  bool is_that_of(const at::Tensor& tensor) const {
    if (!storage_ || !tensor.has_storage()) return false;
    const auto storage = storage_->lock();
    return storage != nullptr && storage.get() == tensor.storage().unsafeGetStorageImpl();
  }
  std::int64_t now() const { return counter_.enabled() ? counter_.current_version() : 0; }
  bool has_changed() const { return now() != version_; }

 private:
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage_;
  c10::VariableVersion counter_;
  std::int64_t version_ = 0;
};

namespace {

namespace autograd = torch::autograd;

/// The checkpointed function that is running on this thread, if any: `frame` gets the tensors that autograd
/// saves, in the first forward or in the recomputation.
struct Running {
  std::shared_ptr<CheckpointFrame> frame;
  bool again = false;
};
thread_local Running running;

class RunningScope {
 public:
  explicit RunningScope(Running next) : before_(std::exchange(running, std::move(next))) {}
  ~RunningScope() { running = std::move(before_); }
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  Running before_;
};

class GeneratorScope {
 public:
  explicit GeneratorScope(const GeneratorStates& states) : before_(states.now()) { states.set(); }
  ~GeneratorScope() { before_.set(); }
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  GeneratorStates before_;
};

class AutocastScope {
 public:
  explicit AutocastScope(const AutocastState& state) {
    state.set();
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    // Weights that were cast for the recomputation are not kept for later operations.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    before_.set();
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  AutocastState before_;
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

class CheckpointFrame : public std::enable_shared_from_this<CheckpointFrame> {
 public:
  CheckpointFrame(std::string name, std::function<void()> recompute, const std::vector<at::Tensor>& inputs)
      : name_(std::move(name)), recompute_(std::move(recompute)) {
    for (const auto& input : inputs) inputs_.emplace_back(input);
  }

  /// In the first forward: records a tensor, drops it unless it is a parameter, and returns its number.
  std::size_t drop(const at::Tensor& tensor) {
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

  /// In the recomputation: keeps the next tensor.
  void keep(const at::Tensor& tensor) {
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

  /// In backward: returns the tensor, after recomputing it if necessary.
  at::Tensor take(std::size_t number) {
    if (first_forward_runs_) {
      throw UsageError("checkpoint: " + name_ +
                       " runs a backward through itself. Leave the part that does outside of the checkpoint");
    }
    const std::lock_guard lock(mutex_);
    const Saved& saved = saved_.at(number);
    check_unchanged(saved);
    if (saved.by_reference) return saved.parameter;
    const int backward = autograd::get_current_graph_task_id();
    if (backward != backward_ || number >= values_.size() || !values_[number].defined()) compute_again();
    backward_ = backward;
    // Each backward asks for each tensor once, so that it is freed after use.
    return std::move(values_[number]);
  }

  void end_first_forward() noexcept { first_forward_runs_ = false; }

 private:
  struct Saved {
    std::vector<std::int64_t> sizes;
    at::ScalarType dtype;
    /// The parameter that it is or is a view of, if any, and its version at that time.
    at::Tensor parameter = {};
    std::int64_t version = 0;
    /// It is the parameter itself, which stays in memory and is the same in the recomputation.
    bool by_reference = false;
    MemoryVersion memory;
  };

  void check_unchanged(const Saved& saved) const {
    if (saved.parameter.defined() && saved.parameter._version() != saved.version) changed(saved.parameter);
  }

  [[noreturn]] void changed(const at::Tensor& tensor) const {
    if (is_parameter(tensor)) {
      throw Error(
          fmt::format("backward: a parameter {} of {} was changed in place after its forward, whose "
                      "activations are to be "
                      "computed again with it",
                      description(tensor), name_));
    }
    throw Error(fmt::format(
        "backward: the tensor {} that {} was called with was changed in place after its forward, whose "
        "activations are to be computed again from it. Give it a copy, or change a copy",
        description(tensor), name_));
  }

  void compute_again() {
    values_.clear();
    for (const auto& input : inputs_)
      if (input.memory.has_changed()) changed(input.tensor);
    versions_before_.clear();
    for (const auto& saved : saved_) versions_before_.push_back(saved.memory.now());
    const RunningScope running_scope({.frame = shared_from_this(), .again = true});
    const GeneratorScope generators(generators_);
    const AutocastScope autocast(autocast_);
    const at::AutoGradMode gradients(true);
    recompute_();
    if (values_.size() != saved_.size())
      differs(fmt::format("{} tensors instead of {}", values_.size(), saved_.size()));
  }

  [[noreturn]] void differs(const std::string& how) {
    throw Error("backward: the recomputation of " + name_ + " saved " + how +
                ". A checkpointed function must compute the same in forward and in backward");
  }

  struct Input {
    explicit Input(const at::Tensor& given) : tensor(given), memory(given) {}
    at::Tensor tensor;
    MemoryVersion memory;
  };

  std::string name_;
  std::function<void()> recompute_;
  std::vector<Input> inputs_;
  GeneratorStates generators_;
  AutocastState autocast_;
  std::vector<Saved> saved_;
  bool first_forward_runs_ = true;

  std::mutex mutex_;
  /// The versions of what the first forward saved, before the recomputation: the function may itself write to
  /// memory that it was given, before it uses it.
  std::vector<std::int64_t> versions_before_;
  /// What the recomputation of this backward saved, by number; empty before.
  std::vector<at::Tensor> values_;
  int backward_ = -1;
};

namespace {

/// Replaces one tensor that the first forward saved.
class Dropped final : public autograd::SavedVariableHooks {
 public:
  explicit Dropped(std::shared_ptr<CheckpointFrame> frame) : frame_(std::move(frame)) {}
  void call_pack_hook(const at::Tensor& tensor) override { number_ = frame_->drop(tensor); }
  at::Tensor call_unpack_hook() override { return frame_->take(number_); }

 private:
  std::shared_ptr<CheckpointFrame> frame_;
  std::size_t number_ = 0;
};

/// One tensor of a recomputation, whose graph is discarded at its end.
class Recomputed final : public autograd::SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override {
    running.frame->keep(tensor);
    tensor_ = tensor.detach();
  }
  at::Tensor call_unpack_hook() override { return tensor_; }

 private:
  at::Tensor tensor_;
};

/// LibTorch's engine with hooks for saved tensors; at::SavedTensorDefaultHooks only takes Python objects. It
/// has no threads: LibTorch's engine runs every backward.
class HookingEngine final : public autograd::Engine {
 public:
  autograd::variable_list execute(const autograd::edge_list& roots, const autograd::variable_list& inputs,
                                  bool keep_graph, bool create_graph, bool accumulate_grad,
                                  const autograd::edge_list& outputs) override {
    return get_base_engine().execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<autograd::GraphTask>& task, std::shared_ptr<autograd::Node> root,
      autograd::InputBuffer&& inputs) override {
    return get_base_engine().execute_with_graph_task(task, std::move(root), std::move(inputs));
  }
  std::unique_ptr<autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (running.frame == nullptr) return nullptr;
    if (running.again) return std::make_unique<Recomputed>();
    return std::make_unique<Dropped>(running.frame);
  }
};

autograd::Engine& hooking_engine() {
  // Never destroyed: threads may still use it while the process ends.
  static auto* const engine = new HookingEngine;
  return *engine;
}

void install_engine() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const autograd::Engine& present = autograd::Engine::get_default_engine();
  if (&present == &hooking_engine()) return;
  if (typeid(present) != typeid(autograd::Engine)) {
    throw UsageError(
        "checkpoint: another library runs the backward in this process (Python's engine?); activation "
        "checkpointing needs LibTorch's own");
  }
  autograd::set_default_engine_stub(&hooking_engine);
}

}  // namespace

bool may_checkpoint() { return at::GradMode::is_enabled() && running.frame == nullptr; }

CheckpointScope::CheckpointScope(std::string name, std::function<void()> recompute,
                                 const std::vector<at::Tensor>& inputs) {
  if (autograd::get_current_graph_task_id() != -1)
    throw UsageError("checkpoint: called inside a backward, as by a hook of a tensor");
  install_engine();
  frame_ = std::make_shared<CheckpointFrame>(std::move(name), std::move(recompute), inputs);
  running = {.frame = frame_};
}

CheckpointScope::~CheckpointScope() {
  running = {};
  frame_->end_first_forward();
}

}  // namespace lockstep::parallel
