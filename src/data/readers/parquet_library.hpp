#pragma once

#include <string>

#include "lockstep/data/array_data.hpp"

namespace lockstep::readers {

/// What liblockstep_arrow.so offers: Parquet by way of Apache Arrow's C++ library, kept in a library of its
/// own so that nobody else needs Arrow's 80 MB. Nothing is thrown across its border.
struct ParquetLibrary {
  int version;
  /// Reads a file into a stream of Arrow's IPC format in memory; false, with the reason, when it cannot.
  bool (*read)(const std::string& path, Buffer& stream, std::string& reason);
};

inline constexpr int kParquetLibraryVersion = 1;
inline constexpr const char* kParquetLibraryEntry = "lockstep_parquet_library";

}  // namespace lockstep::readers
