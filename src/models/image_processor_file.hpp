#pragma once

#include <nlohmann/json.hpp>

#include "lockstep/models/image_processor.hpp"

namespace lockstep::models {

/// The file that an ImageProcessorConfig was read from.
struct ImageProcessorOrigin {
  nlohmann::ordered_json file;
  /// The fields that Lockstep knows, as they were read: those that differ from them have changed since.
  nlohmann::ordered_json known;
};

}  // namespace lockstep::models
