#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "checkpoint/checkpoint_rotation.hpp"

// Checkpoints of save_only_model. All functions are *Local*.
namespace lockstep::train {

/// Writes `folder`/checkpoint-<step> atomically, with the files that `write` creates, the weights among them,
/// and removes the oldest of its kind. It has no manifest, so that no run resumes from it automatically.
void save_weights_only(const std::filesystem::path& folder, std::int64_t step,
                       const std::function<void(const std::filesystem::path&)>& write,
                       const RotationOptions& rotation);

/// Removes what save_weights_only() wrote for the step, if anything.
void remove_weights(const std::filesystem::path& folder, std::int64_t step);

}  // namespace lockstep::train
