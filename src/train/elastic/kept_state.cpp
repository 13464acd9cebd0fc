#include "train/elastic/kept_state.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace lockstep::train {

/// Copies all buffers: kernels change some of them (batch norm's) without a trace in their versions.
void KeptState::keep() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (i == values_.size()) values_.push_back(at::empty_like(buffers_[i]));
    values_[i].copy_(buffers_[i]);
  }
  positions_.clear();
  for (const auto& loader : loaders_) positions_.push_back(loader.state());
}

void KeptState::restore() const {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < values_.size(); ++i) buffers_[i].detach().copy_(values_[i]);
  for (std::size_t i = 0; i < positions_.size(); ++i) loaders_[i].load_state(positions_[i]);
}

}  // namespace lockstep::train
