#include "core/runtime/heartbeat_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/file_descriptor.hpp"
#include "core/runtime/heartbeat_page.hpp"
#include "core/runtime/rank_counters.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

std::string stacks_file(const std::string& heartbeat_file) { return heartbeat_file + ".stacks"; }

void make_heartbeat_file(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  HeartbeatPage empty{};
  std::memcpy(empty.magic, HeartbeatPage::kMagic, sizeof empty.magic);
  static_assert(sizeof empty <= 4096, "rank_counters.cpp has the next page");
  if (!file || write(file.get(), &empty, sizeof empty) != static_cast<ssize_t>(sizeof empty))
    throw Error(fmt::format("cannot make the heartbeat file '{}': {}.", path, std::strerror(errno)));
  add_rank_counters(file.get());
}

std::optional<HeartbeatRecord> read_heartbeat(const std::string& path) {
  // O_NONBLOCK: does not hang if the path is a pipe.
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  auto record = newest_record([&](HeartbeatPage& seen) {
    return pread(file.get(), &seen, sizeof seen, 0) == static_cast<ssize_t>(sizeof seen) && seen.has_magic();
  });
  return record && record->pid > 0 ? record : std::nullopt;
}

}  // namespace lockstep
