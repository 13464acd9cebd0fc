#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

enum class MixedPrecision;

/// Accelerator::prepare() makes models fully sharded, and no DistributedDataParallel: Accelerate's class,
/// with `fsdp_version` 2. What it has beside these fields does not apply: units are the model's own.
struct FullyShardedDataParallelPlugin {
  /// As FullyShardOptions: off is ZeRO-2.
  bool reshard_after_forward = true;
  bool backward_prefetch = true;
  std::vector<std::string> transformer_cls_names_to_wrap = {};
  /// A MixedPrecisionPolicy with this dtype everywhere: weights are sent and computed with, and gradients
  /// reduced, in half the bytes; bf16 alone. AcceleratorOptions::mixed_precision instead leaves both in
  /// float32 and converts what autocast chooses; leave it `no` then.
  std::optional<MixedPrecision> mixed_precision_policy = std::nullopt;
  /// Backward computes the activations of the model's units again: see set_activation_checkpointing().
  bool activation_checkpointing = false;
  /// The ranks of each node divide a model among themselves, and nodes have the same: HYBRID_SHARD. Every
  /// node must have equally many.
  bool hybrid_shard = false;
};

}  // namespace lockstep
