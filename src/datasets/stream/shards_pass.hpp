#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "datasets/stream/row_pass.hpp"
#include "datasets/stream/shard_rows.hpp"

namespace lockstep::stream {

/// Called for a shard that cannot be read; if empty, that is an error.
using TakeBad = std::function<void(std::int64_t shard, const std::string& reason)>;

/// A shard's name in errors.
using NameShard = std::function<std::string(std::int64_t shard)>;

/// These shards, in order.
PassPointer shards_pass(std::vector<std::int64_t> shards, OpenShard open, TakeBad take_bad, NameShard name);

}  // namespace lockstep::stream
