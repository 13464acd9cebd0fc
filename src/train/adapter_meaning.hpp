#pragma once

#include <filesystem>
#include <string>

namespace lockstep::train {

/// Throws DataError unless the saved configuration of an adapter, adapter_config.json, and the text `own` of
/// the program's give the matrices the same meaning: with another lora_alpha the same numbers are another
/// model. A field that is missing has PEFT's default. Also throws if the file cannot be read.
void check_same_adapter(const std::filesystem::path& file, const std::string& own);

/// The configuration beside a file of weights, "adapter_config_1.json" beside "model_1.safetensors", or in a
/// folder; empty if there is none.
std::filesystem::path adapter_config_beside(const std::filesystem::path& weights);

}  // namespace lockstep::train
