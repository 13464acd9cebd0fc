#pragma once

#include <filesystem>
#include <string_view>

namespace lockstep {

/// A file that grows at its end. Each piece is with the system when append() returns: it survives the death
/// of the process, though not that of the machine. Made where it is not there. Throws Error, naming the path
/// and the system's reason. *Local*; one thread at a time; not copied and not moved.
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

}  // namespace lockstep
