#pragma once

#include <memory>

#include "datasets/stream/shard_rows.hpp"
#include "lockstep/datasets/iterable_dataset.hpp"

namespace lockstep::stream {

/// Of IterableDataset::from_generator.
std::unique_ptr<ShardRows> generator_rows(IterableDataset::Generator generator);

}  // namespace lockstep::stream
