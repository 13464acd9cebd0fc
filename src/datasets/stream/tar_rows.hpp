#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "datasets/stream/shard_rows.hpp"

namespace lockstep::stream {

/// A WebDataset shard.
std::unique_ptr<ShardRows> tar_rows(const std::filesystem::path& path, std::uint64_t max_sample_bytes);

}  // namespace lockstep::stream
