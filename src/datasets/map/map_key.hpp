#pragma once

#include <string>

#include "lockstep/datasets/cache_entry.hpp"
#include "lockstep/datasets/map.hpp"

namespace lockstep {

/// What tells one build of a program or library from another: the build id that the linker has put into the
/// module in which `address` lies, in hexadecimal; where it has put none, the content hash of the module's
/// file. Throws Error where neither is to be had. *Local*. Source: the note NT_GNU_BUILD_ID of elf(5).
std::string build_id_of(const void* address);

/// The same with the address's place in the module: what tells functions of one build apart.
std::string code_id_of(const void* address);

/// Key, name and fields of the result of a map (or of another `operation` of its kind). Reads the source's
/// files and the input files whose hashes `cache` does not remember. Throws UsageError for captured values
/// that nothing stands for and for parameters that are no JSON object, DataError for a file that cannot be
/// read.
CacheManifest map_manifest(const ArrowDataset& dataset, const std::string& operation,
                           const mapping::Code& code, const MapOptions& options,
                           const std::filesystem::path& cache);

}  // namespace lockstep
