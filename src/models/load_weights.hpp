#pragma once

#include <filesystem>

#include "lockstep/models/pretrained_model.hpp"

namespace lockstep::models {

/// Copies the weights of a folder into a model, which keeps the old names of its file. Sets `report`, unless
/// it is null.
void load_weights(PreTrainedModelImpl& model, const std::filesystem::path& folder,
                  const PretrainedNames& names, PretrainedReport* report);

}  // namespace lockstep::models
