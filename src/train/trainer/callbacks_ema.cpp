#include <ATen/ATen.h>
#include <fmt/core.h>

#include "lockstep/core/error.hpp"
#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/callbacks.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep {
namespace {

std::string key_of(std::size_t index) { return "mean." + std::to_string(index); }

}  // namespace

EmaCallback::EmaCallback(double decay, bool apply_at_end) : decay_(decay), apply_at_end_(apply_at_end) {
  if (!(decay > 0 && decay < 1))
    throw UsageError(fmt::format("EmaCallback: the decay must be between 0 and 1, not {}", decay));
}

void EmaCallback::on_prepare(CallbackContext& event) {
  if (event.trainer.accelerator().options().fsdp_plugin)
    throw UsageError(
        "EmaCallback: with fsdp the weights are sharded over the ranks, and their moving average is not "
        "supported");
  if (apply_at_end_ && event.args.load_best_model_at_end)
    throw UsageError(
        "EmaCallback: at the end its averages would replace the weights that load_best_model_at_end loads: "
        "leave out the moving average (--ema-decay) or load_best_model_at_end");
  means_.tensors.clear();
  for (const auto& entry : event.trainer.model().parameters()) {
    const at::Tensor weight = entry.tensor.detach();
    means_.tensors.push_back(c10::isReducedFloatingType(weight.scalar_type()) ? weight.to(at::kFloat)
                                                                              : weight.clone());
  }
  event.trainer.accelerator().register_for_checkpointing("ema", means_);
}

/// All ranks have rank 0's weights by now. After resuming, the means are the checkpoint's.
void EmaCallback::on_train_begin(CallbackContext& event) {
  if (event.state.global_step > 0) return;
  const at::NoGradGuard no_grad;
  const auto parameters = event.trainer.model().parameters();
  for (std::size_t i = 0; i < means_.tensors.size(); ++i) means_.tensors[i].copy_(parameters[i].tensor);
}

void EmaCallback::on_optimizer_step(CallbackContext& event) {
  const at::NoGradGuard no_grad;
  const auto parameters = event.trainer.model().parameters();
  std::vector<at::Tensor> weights;
  for (std::size_t i = 0; i < means_.tensors.size(); ++i)
    weights.push_back(parameters[i].tensor.to(means_.tensors[i].scalar_type()));
  // Like AveragedModel, the averages begin with the weights after the first step.
  at::_foreach_lerp_(means_.tensors, weights, event.state.global_step == 0 ? 1 : 1 - decay_);
}

void EmaCallback::on_train_end(CallbackContext& event) {
  if (!apply_at_end_) return;
  const at::NoGradGuard no_grad;
  const auto parameters = event.trainer.model().parameters();
  for (std::size_t i = 0; i < means_.tensors.size(); ++i) parameters[i].tensor.copy_(means_.tensors[i]);
}

SafeTensors EmaCallback::Means::state_dict() const {
  SafeTensors state;
  for (std::size_t i = 0; i < tensors.size(); ++i) state.tensors.emplace(key_of(i), tensors[i]);
  return state;
}

void EmaCallback::Means::load_state_dict(const SafeTensors& state) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto found = state.tensors.find(key_of(i));
    if (found == state.tensors.end() || found->second.sizes() != tensors[i].sizes())
      throw DataError("the checkpoint's mean of the weights does not fit the model: " + key_of(i));
    tensors[i].copy_(found->second);
  }
}

}  // namespace lockstep
