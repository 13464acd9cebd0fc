#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

enum class MixedPrecision;

/// Accelerator::prepare() fully shards models instead of wrapping them in DistributedDataParallel.
/// Accelerate's class with `fsdp_version` 2. Its other fields do not apply: the units are those of the model.
struct FullyShardedDataParallelPlugin {
  /// As in FullyShardOptions: off is ZeRO-2.
  bool reshard_after_forward = true;
  bool backward_prefetch = true;
  std::vector<std::string> transformer_cls_names_to_wrap = {};
  /// A MixedPrecisionPolicy with this dtype everywhere: weights are communicated and used, and gradients
  /// reduced, in half the bytes; only bf16. AcceleratorOptions::mixed_precision, in contrast, keeps both in
  /// float32 and converts what autocast selects; leave it `no` then.
  std::optional<MixedPrecision> mixed_precision_policy = std::nullopt;
  /// Backward recomputes the activations of the model's units: see set_activation_checkpointing().
  bool activation_checkpointing = false;
  /// The ranks of each node shard a model among themselves, and nodes replicate it: HYBRID_SHARD. Every node
  /// must have the same number of ranks.
  bool hybrid_shard = false;
};

}  // namespace lockstep
