#pragma once

#include <optional>

#include "lockstep/train/fsdp_plugin.hpp"
#include "lockstep/train/training_arguments.hpp"

namespace lockstep {

/// What TrainingArguments::fsdp and ::fsdp_config ask for; nothing where `fsdp` is empty. *Local*. Throws
/// UsageError for words and keys that are not known, naming those that are.
std::optional<FullyShardedDataParallelPlugin> fsdp_plugin(const TrainingArguments& args);

}  // namespace lockstep
