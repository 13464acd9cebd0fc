#pragma once

#include <nlohmann/json.hpp>

#include "lockstep/models/decoder.hpp"

namespace lockstep::models {

/// The fields of config.json that Lockstep knows, except "architectures".
nlohmann::ordered_json decoder_fields(const DecoderConfig& config);

}  // namespace lockstep::models
