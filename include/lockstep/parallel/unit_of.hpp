#pragma once

#include "lockstep/parallel/unit.hpp"

namespace lockstep {

/// Makes a unit of a block of an existing class, with the same parameter names:
///
///     using Layer = lockstep::UnitOf<torch::nn::TransformerEncoderLayerImpl>;
///     layers.push_back(register_module("layer", std::make_shared<Layer>(options)));
///     states = layers.back()->forward(states);
///
/// `Block`: a `torch::nn` module class that is not final, not its holder. forward has the block's arguments
/// and result. It is a template, so `torch::nn::Sequential` cannot contain such a block. *Local*;
/// *Collective* in a fully sharded model.
template <class Block>
class UnitOf : public Block, public Unit {
 public:
  using Block::Block;

  template <class... Inputs>
  auto forward(const Inputs&... inputs) {
    return through(*this, &UnitOf::template body<Inputs...>, inputs...);
  }

 private:
  template <class... Inputs>
  auto body(const Inputs&... inputs) {
    return Block::forward(inputs...);
  }
};

}  // namespace lockstep
