#include "train/elastic/kept_state.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/core.h>

#include <utility>

namespace lockstep::train {

/// Copies all buffers: kernels change some of them (batch norm's) without a trace in their versions.
void KeptState::keep() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parts_.buffers.size(); ++i) {
    if (i == values_.size()) values_.push_back(at::empty_like(parts_.buffers[i]));
    values_[i].copy_(parts_.buffers[i]);
  }
  positions_.clear();
  for (const auto& loader : parts_.loaders) positions_.push_back(loader.state());
  schedules_.clear();
  for (const auto* scheduler : parts_.schedulers) schedules_.push_back(scheduler->state_dict());
  rates_.clear();
  for (auto* optimizer : parts_.optimizers) {
    auto& rates = rates_.emplace_back();
    for (auto& group : optimizer->param_groups()) rates.push_back(group.options().get_lr());
  }
}

void KeptState::restore() const {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < values_.size(); ++i) parts_.buffers[i].detach().copy_(values_[i]);
  for (std::size_t i = 0; i < positions_.size(); ++i) parts_.loaders[i].load_state(positions_[i]);
  for (std::size_t i = 0; i < schedules_.size(); ++i) parts_.schedulers[i]->load_state_dict(schedules_[i]);
  for (std::size_t i = 0; i < rates_.size(); ++i) {
    auto& groups = parts_.optimizers[i]->param_groups();
    for (std::size_t group = 0; group < groups.size() && group < rates_[i].size(); ++group)
      groups[group].options().set_lr(rates_[i][group]);
  }
}

std::string KeptState::moved_back() const {
  std::string text;
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    const DataLoaderState now = parts_.loaders[i].state();
    const auto place = [](const DataLoaderState& state) { return std::pair(state.epoch, state.samples); };
    if (place(now) > place(positions_[i])) return "";
    if (text.empty() && place(now) < place(positions_[i])) {
      text = fmt::format("loader #{} from epoch {}, sample {}, to epoch {}, sample {}", i + 1,
                         positions_[i].epoch, positions_[i].samples, now.epoch, now.samples);
    }
  }
  return text;
}

}  // namespace lockstep::train
