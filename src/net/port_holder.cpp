#include "net/port_holder.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "net/socket_table.hpp"

namespace lockstep::net {
namespace {

namespace fs = std::filesystem;

bool is_process(const fs::path& path) {
  const std::string name = path.filename();
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool holds(const fs::path& process, const std::string& socket) {
  std::error_code hidden;
  for (fs::directory_iterator entry(process / "fd", hidden), end; !hidden && entry != end;
       entry.increment(hidden)) {
    std::error_code gone;
    if (fs::read_symlink(entry->path(), gone) == socket) return true;
  }
  return false;
}

std::string description(const fs::path& process) {
  std::string name;
  std::getline(std::ifstream(process / "comm"), name);
  return "process " + process.filename().string() + " (" + name + ")";
}

}  // namespace

std::string port_holder(std::uint16_t port) {
  const auto inode = listener_inode(port);
  if (!inode) return "";
  const std::string socket = "socket:[" + std::to_string(*inode) + "]";
  std::error_code failure;
  for (fs::directory_iterator entry("/proc", failure), end; !failure && entry != end;
       entry.increment(failure)) {
    if (is_process(entry->path()) && holds(entry->path(), socket)) return description(entry->path());
  }
  return "another user's process";
}

}  // namespace lockstep::net
