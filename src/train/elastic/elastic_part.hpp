#pragma once

#include <nlohmann/json_fwd.hpp>

namespace lockstep::train {

/// What belongs to a training without being part of its checkpoints, such as the number of the step in
/// Checkpoints: a process that replaces another one gets it from the rank whose state all take.
class ElasticPart {
 public:
  virtual ~ElasticPart() = default;
  virtual nlohmann::json elastic_state() const = 0;
  virtual void take_elastic_state(const nlohmann::json& state) = 0;
};

}  // namespace lockstep::train
