#pragma once

#include <filesystem>

#include "lockstep/models/bart.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/models/opt.hpp"
#include "lockstep/models/pretrained_model.hpp"

namespace lockstep::models {

/// Copies the weights of a folder into a model, which keeps the old names of its file. Sets `report`, unless
/// it is null.
void load_weights(PreTrainedModelImpl& model, const std::filesystem::path& folder,
                  const PretrainedNames& names, PretrainedReport* report);

// What programs ask of each family's configuration.

ModelConfig model_config_of(const BartConfig& config);
ModelConfig model_config_of(const BertConfig& config);
ModelConfig model_config_of(const Gpt2Config& config);
ModelConfig model_config_of(const OptConfig& config);

}  // namespace lockstep::models
