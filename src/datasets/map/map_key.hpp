#pragma once

#include <string>

#include "lockstep/datasets/cache_entry.hpp"
#include "lockstep/datasets/map.hpp"

namespace lockstep {

/// Identifies a build of a program or library: the linker's build id of the module that contains `address`,
/// in hexadecimal; without one, the content hash of the module's file. Throws Error if neither is available.
/// *Local*. Source: the note NT_GNU_BUILD_ID of elf(5).
std::string build_id_of(const void* address);

/// Same, with the offset of the address in the module, which identifies a function of a build.
std::string code_id_of(const void* address);

/// Key, name and fields of the result of a map (or another `operation` like it). Reads those of the source's
/// files and input files whose hashes are not stored in `cache`. Throws UsageError for captured values that
/// are not part of the key and for parameters that are not a JSON object, DataError if a file cannot be read.
CacheManifest map_manifest(const ArrowDataset& dataset, const std::string& operation,
                           const mapping::Code& code, const MapOptions& options,
                           const std::filesystem::path& cache);

}  // namespace lockstep
