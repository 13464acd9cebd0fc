#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/callbacks.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep {

void NanGuardCallback::add(const CallbackContext& event) {
  const at::NoGradGuard no_grad;
  const at::Tensor loss = event.trainer.last_loss().value.to(at::kDouble).reshape({1});
  sum_ = sum_.defined() ? sum_ + loss : loss;
}

void NanGuardCallback::on_substep_end(CallbackContext& event) { add(event); }

void NanGuardCallback::on_pre_optimizer_step(CallbackContext& event) {
  add(event);
  const at::Tensor sum = std::exchange(sum_, at::Tensor());
  const std::int64_t step = event.state.global_step + 1;
  if (step % every_ != 0) return;
  const at::Tensor all = event.trainer.accelerator().gather(sum).cpu();
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; rank < all.numel(); ++rank) {
    if (!std::isfinite(all[rank].item<double>())) ranks.push_back(rank);
  }
  if (ranks.empty()) return;
  throw Error(
      fmt::format("step {}: the loss of rank(s) {} is not finite. The weights are those of the step before. "
                  "Look at the samples of this step, try a smaller learning_rate, or max_grad_norm",
                  step, fmt::join(ranks, ", ")));
}

}  // namespace lockstep
