#pragma once

#include <filesystem>

#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/bart.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/models/decoder.hpp"
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
ModelConfig model_config_of(const DecoderConfig& config);
ModelConfig model_config_of(const Gpt2Config& config);
ModelConfig model_config_of(const OptConfig& config);

/// A new model of the family `config.model_type`. Throws UsageError for sizes that do not fit each other.
DecoderConfig decoder_config_of(const ModelConfig& config, const ModelSizes& sizes);

}  // namespace lockstep::models
