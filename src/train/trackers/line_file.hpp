#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// A file that grows at its end. append() flushes each piece to the OS before it returns: it survives the
/// death of the process, though not that of the machine. Made where it is not there. Throws Error, naming the
/// path and the system's reason. *Local*; one thread at a time; not copied and not moved.
class AppendedFile {
 public:
  explicit AppendedFile(std::filesystem::path path);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  void append(std::string_view bytes);

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// A text file of whole lines that may be rewritten as a whole. What stands behind the last line end, torn
/// off by a kill, is dropped when it is opened. Throws Error. *Local*; one thread at a time.
class LineFile {
 public:
  explicit LineFile(std::filesystem::path path);

  /// Appends a line; `line` is without its end.
  void add(std::string_view line);

  /// Puts what `change` makes of each line in its place, or drops it. `change` gets the line without its end.
  /// The new file takes the old one's place at once. Throws what `change` throws.
  void rewrite(const std::function<std::optional<std::string>(std::string_view line)>& change);

  /// The first line, empty in an empty file.
  std::string first_line() const;

 private:
  void drop_torn_line() const;

  std::filesystem::path path_;
  std::optional<AppendedFile> file_;
};

/// Seconds since 1970.
double wall_time();

/// The shortest text that gives the number again; "nan", "inf" and "-inf".
std::string value_text(double number);

}  // namespace lockstep
