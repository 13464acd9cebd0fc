#pragma once

#include <memory>
#include <string>

#include "lockstep/datasets/map.hpp"
#include "options.hpp"

/// One worker's replica of the model, and what it does with a batch of texts.
class Inference {
 public:
  virtual ~Inference() = default;
  /// One value for each text.
  virtual lockstep::Column operator()(const lockstep::MapBatch& batch) = 0;
};

/// Loads the model that the options name, which check_model has passed, onto the worker's device.
std::unique_ptr<Inference> make_inference(const Options& options, const lockstep::Worker& worker);

/// The name of the new column.
std::string output_column(const Options& options);
