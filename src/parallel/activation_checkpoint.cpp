#include "lockstep/parallel/activation_checkpoint.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <mutex>
#include <typeinfo>

#include "lockstep/core/error.hpp"
#include "parallel/checkpoint_frame.hpp"

namespace lockstep::parallel {
namespace {

namespace autograd = torch::autograd;

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
    RunningCheckpoint::current().frame->keep(tensor);
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
    if (RunningCheckpoint::current().frame == nullptr) return nullptr;
    if (RunningCheckpoint::current().again) return std::make_unique<Recomputed>();
    return std::make_unique<Dropped>(RunningCheckpoint::current().frame);
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

bool may_checkpoint() { return at::GradMode::is_enabled() && RunningCheckpoint::current().frame == nullptr; }

CheckpointScope::CheckpointScope(std::string name, std::function<void()> recompute,
                                 const std::vector<at::Tensor>& inputs) {
  if (autograd::get_current_graph_task_id() != -1)
    throw UsageError("checkpoint: called inside a backward, as by a hook of a tensor");
  install_engine();
  frame_ = std::make_shared<CheckpointFrame>(std::move(name), std::move(recompute), inputs);
  RunningCheckpoint::current() = {.frame = frame_};
}

CheckpointScope::~CheckpointScope() {
  RunningCheckpoint::current() = {};
  frame_->end_first_forward();
}

}  // namespace lockstep::parallel
