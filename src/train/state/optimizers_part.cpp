#include "train/state/optimizers_part.hpp"

#include <torch/optim/optimizer.h>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors_source.hpp"
#include "checkpoint/tensor_source.hpp"
#include "lockstep/train/consolidated_optimizer.hpp"
#include "train/broadcast_tensors.hpp"

namespace lockstep::train {
namespace {

std::string tensors_file(std::size_t index) { return numbered_file("optimizer", index, ".safetensors"); }
std::string options_file(std::size_t index) { return numbered_file("optimizer", index, ".json"); }

/// Null for an optimizer whose state is not sharded over ranks.
optim::ZeroRedundancyOptimizer* as_zero(torch::optim::Optimizer* optimizer) {
  return dynamic_cast<optim::ZeroRedundancyOptimizer*>(optimizer);
}

/// The optimizer that a file describes.
const torch::optim::Optimizer& local_optimizer(torch::optim::Optimizer& optimizer) {
  const auto* const zero = as_zero(&optimizer);
  return zero != nullptr ? zero->local_optimizer() : optimizer;
}

}  // namespace

void OptimizersPart::gather(const GatherOptions& options) {
  const auto names = models_.parameter_names();
  const auto sharded = models_.sharded_models();
  for (auto* optimizer : optimizers_) {
    auto& state = states_.emplace_back();
    if (const auto* zero = as_zero(optimizer)) {
      state = consolidate_optimizer_state(*zero, names, options.writes);
    } else if (!sharded.empty() && options.at_once) {
      state =
          consolidate_optimizer_state({sharded.begin(), sharded.end()}, *optimizer, names, options.writes);
    } else if (!sharded.empty()) {
      state = queue_optimizer_state(options.queue, sharded, *optimizer, names);
    }
  }
}

void OptimizersPart::take_local() {
  const auto names = models_.parameter_names();
  for (std::size_t i = 0; i < optimizers_.size(); ++i) {
    if (states_[i].options.empty()) states_[i] = optimizer_state(*optimizers_[i], names);
  }
}

void OptimizersPart::detach(HostCopies& host) {
  for (auto& state : states_) {
    for (auto& entry : state.tensors) entry.second = host.copy(entry.second);
  }
}

void OptimizersPart::write(CheckpointFiles& files) const {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    files.add_tensors(tensors_file(i),
                      [&state = states_[i]](const std::filesystem::path& path, const GetTensor& get) {
                        TensorSource tensors = source_of(state.tensors);
                        if (get) tensors.get_tensor = get;
                        tensors.metadata = {{"format", "pt"}};
                        return save_file_from(tensors, path);
                      });
    files.add_json(options_file(i), nlohmann::json::parse(states_[i].options));
  }
}

void OptimizersPart::read(const Checkpoint& checkpoint) {
  check_file_count(checkpoint.path, "optimizers", optimizers_.size(), options_file);
  const auto names = models_.parameter_names();
  const auto sharded = models_.sharded_models();
  for (std::size_t i = 0; i < optimizers_.size(); ++i) {
    const auto file = checkpoint.path / tensors_file(i);
    TensorSource tensors = safe_open(file);
    states_.push_back({tensors.forms, read_json_text(checkpoint.path / options_file(i))});
    check_optimizer_state(local_optimizer(*optimizers_[i]), names, states_[i], "'" + file.string() + "'",
                          whole_forms(sharded, names));
    // Without sharded models, the state is read immediately, so that an unreadable file changes nothing.
    if (sharded.empty()) {
      states_[i].tensors = get_tensors(tensors);
    } else {
      sources_.push_back(std::move(tensors));
    }
  }
}

void OptimizersPart::apply(const Accelerator& accelerator, const CheckpointInfo&) {
  const auto& group = accelerator.process_group();
  const auto names = models_.parameter_names();
  const auto sharded = models_.sharded_models();
  constexpr const char* kWhere = "rank 0's optimizer state";
  states_.resize(optimizers_.size());
  sources_.resize(optimizers_.size());
  for (std::size_t i = 0; i < optimizers_.size(); ++i) {
    OptimizerState& state = states_[i];
    if (auto* const zero = as_zero(optimizers_[i])) {
      load_consolidated(*zero, names, state, group, kWhere);
    } else if (!sharded.empty()) {
      load_consolidated({sharded.begin(), sharded.end()}, *optimizers_[i], names, sources_[i], state.options,
                        group, kWhere);
    } else {
      state.options = group.broadcast_object(state.options, root());
      state.tensors = broadcast_tensors(group, state.tensors, root());
      if (!is_giver(group)) load_optimizer_state(*optimizers_[i], names, state, kWhere);
    }
  }
}

std::string OptimizersPart::why_not_given() const {
  const bool any =
      std::ranges::any_of(optimizers_, [](auto* optimizer) { return as_zero(optimizer) != nullptr; });
  return any ? "each rank has a part of its own of a ZeroRedundancyOptimizer's state" : "";
}

}  // namespace lockstep::train
