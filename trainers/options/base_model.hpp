#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/trainer_callback.hpp"

namespace program_options {

/// What a training begins from, by the options that name it: folders of models and adapters, a config.json
/// alone, whose weights are not loaded, or files of weights. Empty ones are not given.
using Beginnings = std::vector<std::pair<std::string, std::string>>;

/// Keeps in each checkpoint what the training began from, and refuses to resume with anything else: the
/// weights would be the checkpoint's, and config.json the other model's. Content counts, not the path. What
/// is in a folder of `outputs`, where the training itself writes, is not compared, and neither are
/// checkpoints that lack this.
///
/// The constructor reads, on each rank, the configurations and, for a hash, files of weights of at most 16
/// MiB; of larger ones 17 MiB: the beginning, and samples at equal distances. *Local*. Throws DataError for
/// files that cannot be read. Resuming throws DataError, which names both, and what differs.
std::shared_ptr<lockstep::TrainerCallback> base_model_callback(const Beginnings& beginnings,
                                                               const std::vector<std::string>& outputs);

}  // namespace program_options
