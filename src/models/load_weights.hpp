#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/models/pretrained_model.hpp"

namespace lockstep::models {

/// Copies the weights of a folder into a model, which keeps the old names of its file. Sets `report`, unless
/// it is null.
void load_weights(PreTrainedModelImpl& model, const std::filesystem::path& folder,
                  const PretrainedNames& names, PretrainedReport* report);

/// The same for a model with a head whose names begin with one of `head`. It keeps its initial values if the
/// files have none, and always if it `is_new`: one with other classes is another head, even if its name and
/// its shape are the same.
void load_weights_with_head(PreTrainedModelImpl& model, const std::filesystem::path& folder,
                            PretrainedNames names, const std::vector<std::string>& head, bool is_new,
                            PretrainedReport* report);

}  // namespace lockstep::models
