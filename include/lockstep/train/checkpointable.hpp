#pragma once

#include "lockstep/checkpoint/safetensors.hpp"

namespace lockstep {

/// Something of the program's own that belongs into a checkpoint: a scheduler, sums of an epoch, an averaged
/// model. See Accelerator::register_for_checkpointing.
class Checkpointable {
 public:
  virtual ~Checkpointable() = default;

  /// What it needs to go on, as tensors and texts by name. Called on every rank while a checkpoint is
  /// written; what rank 0 returns is kept. An object that differs from rank to rank may therefore gather its
  /// parts here.
  virtual SafeTensors checkpoint_state() const = 0;

  /// Takes back what checkpoint_state() returned. Called on every rank, with the same content, its tensors on
  /// the CPU. May throw DataError for what does not fit.
  virtual void load_checkpoint_state(const SafeTensors& state) = 0;
};

}  // namespace lockstep
