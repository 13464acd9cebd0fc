#pragma once

#include "lockstep/parallel/unit.hpp"

namespace lockstep {

/// A block of somebody else's class that is a unit, with the parameters' names that the class gives them:
///
///     using Layer = lockstep::UnitOf<torch::nn::TransformerEncoderLayerImpl>;
///     layers.push_back(register_module("layer", std::make_shared<Layer>(options)));
///     states = layers.back()->forward(states);
///
/// `Block`: a `torch::nn` module that may be inherited from, and not its holder. forward takes and returns
/// what the block's does. It is a template, so that `torch::nn::Sequential` cannot hold such a block.
/// *Local*; *Collective* in a model that is fully sharded.
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
