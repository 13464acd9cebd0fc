#pragma once

#include <string>
#include <vector>

#include "lockstep/datasets/cache_folder.hpp"

namespace lockstep::launch {

/// A table of the entries, a line each, and their sum.
std::string cache_table(const std::vector<CacheEntry>& entries);

/// An array of objects: key, name, version, complete, rows, bytes, last_use (UTC), in_use, folder, and with
/// `fields` what the key was made from.
std::string cache_json(const std::vector<CacheEntry>& entries, bool fields);

/// "1.2 GiB".
std::string bytes_text(std::uint64_t bytes);

}  // namespace lockstep::launch
