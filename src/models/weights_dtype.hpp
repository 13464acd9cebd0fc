#pragma once

#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/parallel/sharded_init.hpp"
#include "models/nf4_layers.hpp"

namespace lockstep::models {

/// While it exists, the models that this thread makes have weights of this dtype: their blocks from when each
/// is complete, so that only one is in float32 at a time, and the rest from load_weights().
class [[nodiscard]] WeightsDtype {
 public:
  explicit WeightsDtype(at::ScalarType dtype);
  ~WeightsDtype();
  WeightsDtype(const WeightsDtype&) = delete;
  WeightsDtype& operator=(const WeightsDtype&) = delete;

  /// Converts what is in another floating-point dtype, if there is a WeightsDtype; not the scales of
  /// quantized layers.
  static void apply(torch::nn::Module& module);

 private:
  std::optional<at::ScalarType> before_;
};

/// made() of a block, in the dtype of the weights, and quantized if they are.
template <class Block>
Block made_in_dtype(Block block) {
  WeightsDtype::apply(*block.ptr());
  WeightsQuantization::apply(*block.ptr());
  return made(std::move(block));
}

/// A dtype of weights by its name in Python; none for others.
std::optional<at::ScalarType> python_dtype(const std::string& name);

/// transformers' "auto": the dtype that config.json names, otherwise that of the first weights in the folder.
at::ScalarType dtype_of_folder(const std::filesystem::path& folder);

}  // namespace lockstep::models
