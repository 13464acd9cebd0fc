#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string_view>

namespace lockstep::launch {

/// A line of a file, without its end.
struct TextLine {
  std::string_view text;
  /// From 1.
  std::size_t number = 0;
  /// Whether its end was there: a file that is being written may end within a line.
  bool is_complete = true;
  /// Whether it was longer than 4 MiB: `text` is then its beginning.
  bool is_cut = false;
};

/// Calls `take` for each line of a regular file of any size, in constant memory. *Local*. Throws DataError if
/// it cannot be read, and what `take` throws.
void read_lines(const std::filesystem::path& path, const std::function<void(const TextLine&)>& take);

}  // namespace lockstep::launch
