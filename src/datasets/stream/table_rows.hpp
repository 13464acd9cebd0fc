#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "datasets/stream/first_file.hpp"
#include "datasets/stream/shard_rows.hpp"

namespace lockstep::stream {

/// Called for a line that is left out; if empty, it is an error.
using TakeBadLine = std::function<void(std::int64_t line, const std::string& reason)>;

/// A file of a table or of text. A compressed file is decompressed now; with `take_bad`, up to its damage.
/// `first`: of the same stream.
std::unique_ptr<ShardRows> table_rows(const std::filesystem::path& path, FileFormat format,
                                      const LoadOptions& options, const TakeBadLine& take_bad,
                                      std::shared_ptr<FirstFile> first);

}  // namespace lockstep::stream
