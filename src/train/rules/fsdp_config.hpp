#pragma once

#include <optional>

#include "lockstep/train/fsdp_plugin.hpp"
#include "lockstep/train/training_arguments.hpp"

namespace lockstep {

/// The plugin that TrainingArguments::fsdp and ::fsdp_config describe; null if `fsdp` is empty. *Local*.
/// Throws UsageError for unknown words and keys, listing the known ones.
std::optional<FullyShardedDataParallelPlugin> fsdp_plugin(const TrainingArguments& args);

}  // namespace lockstep
