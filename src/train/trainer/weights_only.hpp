#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "checkpoint/checkpoint_rotation.hpp"
#include "lockstep/parallel/module_tensors.hpp"

// Checkpoints of save_only_model. All functions are *Local*.
namespace lockstep::train {

/// Writes `folder`/checkpoint-<step> atomically, with the weights and the files that `add` creates, and
/// removes the oldest of its kind. It has no manifest, so that no run resumes from it automatically.
void save_weights_only(const fs::path& folder, std::int64_t step, const std::vector<NamedTensor>& tensors,
                       const std::function<void(const fs::path&)>& add, const RotationOptions& rotation);

/// Removes what save_weights_only() wrote for the step, if anything.
void remove_weights(const fs::path& folder, std::int64_t step);

}  // namespace lockstep::train
