#pragma once

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "core/file_descriptor.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::file_system {

inline std::filesystem::path parent_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

/// A new hidden name next to `path`. Not derived from its name, which may have the maximum length of the file
/// system.
inline std::filesystem::path temporary_name(const std::filesystem::path& path) {
  static std::atomic<unsigned> counter{0};
  return parent_of(path) / fmt::format(".lockstep-{}-{}.tmp", ::getpid(), counter++);
}

/// Another process or host may use the same temporary name at the same time; then the next one is tried.
inline constexpr int kNamesTried = 1000;

/// Calls `make`, which returns whether it succeeded, with hidden names next to `path` until one is free.
/// Returns errno, with `hidden` empty, or 0.
template <class Make>
int make_hidden(const std::filesystem::path& path, std::filesystem::path& hidden, Make make) {
  int error = EEXIST;
  for (int tried = 0; tried < kNamesTried && error == EEXIST; ++tried) {
    hidden = temporary_name(path);
    error = make(hidden) ? 0 : errno;
  }
  if (error != 0) hidden.clear();
  return error;
}

inline std::string reason(int error) { return std::generic_category().message(error); }

/// The first line of a file such as those in /proc, without its end; empty if it cannot be read.
inline std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Writes all bytes. Returns errno, or 0.
inline int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto written = uninterrupted([&] { return ::write(descriptor, bytes.data(), bytes.size()); });
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// Makes the folder and those above it that do not exist. Throws Error.
inline void make_folders(const std::filesystem::path& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure)
    throw Error(fmt::format("cannot make the folder '{}': {}.", folder.string(), failure.message()));
}

/// Syncs the folder. Returns errno, or 0.
inline int sync_folder(const std::filesystem::path& folder) {
  const FileDescriptor descriptor(
      uninterrupted([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!descriptor) return errno;
  const int error = uninterrupted([&] { return ::fsync(descriptor.get()); }) < 0 ? errno : 0;
  // Some network file systems cannot sync a folder and report it; they order the rename themselves.
  return error == EINVAL || error == ENOTSUP ? 0 : error;
}

}  // namespace lockstep::file_system
