#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "readers.hpp"

namespace lockstep::readers {

/// A file whose rows have to be read one after the other.
struct RowFile {
  std::filesystem::path path;
  /// What decides about its rows besides its bytes; values are JSON texts.
  std::map<std::string, std::string> fields;
  /// Its rows; the bytes lie at `unpacked`, which is another file where `path` is a compressed one.
  std::function<std::unique_ptr<RowSource>(const std::filesystem::path& unpacked, Types types)> open;
};

/// Whether the name says that the bytes are compressed: ".gz" and ".zst".
bool is_packed(const std::filesystem::path& path);

/// The rows of a file. Those of a small one come into memory. A large or compressed one is turned into an
/// Arrow file in the cache, a piece at a time, and that is mapped: by all processes, and in the next run. One
/// process writes while others that want the same wait for it; what one that was killed has left is written
/// again. Throws DataError for the file, Error for a cache that cannot be written.
ArrowDataset load_rows(const RowFile& file);

}  // namespace lockstep::readers
