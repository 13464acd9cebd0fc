#pragma once

#include <string>

#include "datasets/cache/cache_entry.hpp"
#include "lockstep/datasets/map.hpp"

namespace lockstep {

/// Key, name and fields of the result of a map (or another `operation` like it). Reads those of the source's
/// files and input files whose hashes are not stored in `cache`. Throws UsageError for captured values that
/// are not part of the key and for parameters that are not a JSON object, DataError if a file cannot be read.
CacheManifest map_manifest(const ArrowDataset& dataset, const std::string& operation,
                           const mapping::Code& code, const MapOptions& options,
                           const std::filesystem::path& cache);

}  // namespace lockstep
