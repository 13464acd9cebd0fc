#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/file_descriptor.hpp"

namespace lockstep {

/// An append-only file, created if it does not exist. append() flushes to the OS before it returns, so that
/// the data survive the death of the process, though not of the machine. Throws Error with the path and the
/// system's reason. *Local*; one thread at a time.
class AppendedFile {
 public:
  explicit AppendedFile(std::filesystem::path path);
  void append(std::string_view bytes);

 private:
  [[noreturn]] void fail(const char* what, int error) const;

  std::filesystem::path path_;
  FileDescriptor descriptor_;
};

/// A text file of complete lines that may be rewritten as a whole. When it is opened, a truncated last line
/// (after a kill) is dropped. Throws Error. *Local*; one thread at a time.
class LineFile {
 public:
  explicit LineFile(std::filesystem::path path);

  /// Appends a line; `line` has no line break.
  void add(std::string_view line);

  /// Replaces each line by the result of `change`, or drops it. `change` gets the line without its line
  /// break. The file is replaced atomically. Rethrows what `change` throws.
  void rewrite(const std::function<std::optional<std::string>(std::string_view line)>& change);

  /// The first line; empty if the file is empty.
  std::string first_line() const;

 private:
  void drop_torn_line() const;

  std::filesystem::path path_;
  std::optional<AppendedFile> file_;
};

/// Seconds since 1970.
double wall_time();

/// The shortest text that parses to the same number; "nan", "inf" and "-inf".
std::string value_text(double number);

}  // namespace lockstep
