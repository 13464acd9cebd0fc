#pragma once

#include "lockstep/datasets/cache_entry.hpp"
#include "lockstep/datasets/map.hpp"

namespace lockstep {

/// Key, name and fields of the result of a map (or of another `operation` of its kind). Reads the source's
/// files and the input files whose hashes `cache` does not remember. Throws UsageError for captured values
/// that nothing stands for and for parameters that are no JSON object, DataError for a file that cannot be
/// read.
CacheManifest map_manifest(const ArrowDataset& dataset, const std::string& operation,
                           const mapping::Code& code, const MapOptions& options,
                           const std::filesystem::path& cache);

}  // namespace lockstep
