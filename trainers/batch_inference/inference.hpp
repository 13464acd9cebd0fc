#pragma once

#include <memory>
#include <string>

#include "lockstep/datasets/map.hpp"
#include "options.hpp"

/// One worker's replica of the model, applied to batches of texts.
class Inference {
 public:
  virtual ~Inference() = default;
  /// One value per text.
  virtual lockstep::Column operator()(const lockstep::MapBatch& batch) = 0;
};

/// Loads the model that the options name onto the worker's device. Call check_model first.
std::unique_ptr<Inference> make_inference(const Options& options, const lockstep::Worker& worker);

/// The name of the new column.
std::string output_column(const Options& options);
