#include "net/socket_table.hpp"

#include <netinet/in.h>

#include <charconv>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

namespace lockstep::net {
namespace {

constexpr unsigned kEstablished = 1, kListening = 10;

/// One line of /proc/net/tcp or tcp6.
struct Row {
  Address local, remote;
  unsigned state = 0;
  uid_t uid = 0;
  std::uint64_t inode = 0;
};

template <class Number>
Number hexadecimal(std::string_view text) {
  Number value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

/// "0100007F:1F90": words in the host's byte order, and the port as a number.
Address parse_end(const std::string& text) {
  const auto colon = text.find(':');
  if (colon != 8 && colon != 32) return {};
  unsigned char bytes[16] = {};
  for (std::size_t word = 0; word < colon / 8; ++word) {
    const auto value = hexadecimal<std::uint32_t>(std::string_view(text).substr(word * 8, 8));
    std::memcpy(bytes + word * 4, &value, sizeof value);
  }
  sockaddr_in four{};
  sockaddr_in6 six{};
  four.sin_family = AF_INET;
  six.sin6_family = AF_INET6;
  std::memcpy(&four.sin_addr, bytes, sizeof four.sin_addr);
  std::memcpy(&six.sin6_addr, bytes, sizeof six.sin6_addr);
  const auto port = hexadecimal<std::uint16_t>(std::string_view(text).substr(colon + 1));
  const Address address = colon == 8 ? Address(reinterpret_cast<sockaddr*>(&four), sizeof four)
                                     : Address(reinterpret_cast<sockaddr*>(&six), sizeof six);
  return address.with_port(port);
}

Row parse_row(const std::string& line) {
  std::istringstream words(line);
  std::string number, local, remote, state, queues, timer, retransmits, timeout;
  Row row;
  words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> row.uid >> timeout >>
      row.inode;
  if (!words) return {};
  row.local = parse_end(local);
  row.remote = parse_end(remote);
  row.state = hexadecimal<unsigned>(state);
  return row;
}

std::optional<Row> find(const std::function<bool(const Row&)>& wanted) {
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      const Row row = parse_row(line);
      if (wanted(row)) return row;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> listener_inode(std::uint16_t port) {
  const auto row =
      find([&](const Row& each) { return each.state == kListening && each.local.port() == port; });
  return row ? std::optional(row->inode) : std::nullopt;
}

std::optional<uid_t> owner_by_proc(const Address& local, const Address& remote) {
  const auto row = find([&](const Row& each) {
    return each.state == kEstablished && each.inode != 0 && each.local == local && each.remote == remote;
  });
  return row ? std::optional(row->uid) : std::nullopt;
}

}  // namespace lockstep::net
