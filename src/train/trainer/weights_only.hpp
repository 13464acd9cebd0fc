#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::train {

/// Which folders of weights stay.
struct WeightsRotation {
  /// As RotationOptions: no more than so many, but the newest and this one always.
  std::int64_t total_limit = 0;
  std::string protect = {};
};

/// Writes `folder`/checkpoint-<step> with the weights and what `add` puts there, whole or not at all, and
/// removes the oldest of its kind. It has no manifest, so that nothing resumes from it by itself. *Local*.
void save_weights_only(const std::filesystem::path& folder, std::int64_t step,
                       const std::vector<NamedTensor>& tensors,
                       const std::function<void(const std::filesystem::path&)>& add,
                       const WeightsRotation& rotation);

/// Removes what that has written for the step, if it has. *Local*.
void remove_weights(const std::filesystem::path& folder, std::int64_t step);

}  // namespace lockstep::train
