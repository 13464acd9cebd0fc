#include "net/socket_owner.hpp"

#include <fmt/core.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string_view>

#include "net/file_descriptor.hpp"

namespace lockstep::net {
namespace {

namespace fs = std::filesystem;

struct Question {
  nlmsghdr header{};
  inet_diag_req_v2 request{};
};

struct Answer {
  nlmsghdr header;
  union {
    inet_diag_msg message;
    nlmsgerr failure;
  };
};

void put_end(const Address& address, __be16& port, __be32* bytes) {
  port = htons(address.port());
  if (address.family() == AF_INET) {
    std::memcpy(bytes, &reinterpret_cast<const sockaddr_in*>(address.data())->sin_addr, 4);
  } else {
    std::memcpy(bytes, &reinterpret_cast<const sockaddr_in6*>(address.data())->sin6_addr, 16);
  }
}

Question question(const Address& local, const Address& remote) {
  Question result;
  result.header.nlmsg_len = sizeof result;
  result.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  result.header.nlmsg_flags = NLM_F_REQUEST;
  result.request.sdiag_family = static_cast<__u8>(local.family());
  result.request.sdiag_protocol = IPPROTO_TCP;
  result.request.idiag_states = ~0U;
  put_end(local, result.request.id.idiag_sport, result.request.id.idiag_src);
  put_end(remote, result.request.id.idiag_dport, result.request.id.idiag_dst);
  result.request.id.idiag_cookie[0] = result.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return result;
}

/// Nothing if the kernel did not answer.
std::optional<Answer> ask(const Question& asked) {
  constexpr Milliseconds kAnswerTimeout{500};
  const FileDescriptor socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!socket || send(socket.get(), &asked, sizeof asked, 0) < 0) return std::nullopt;
  if (!await_ready(socket.get(), POLLIN, Clock::now() + kAnswerTimeout)) return std::nullopt;
  alignas(nlmsghdr) char bytes[4096];
  const ssize_t got = recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  Answer answer{};
  if (got < static_cast<ssize_t>(sizeof(nlmsghdr) + sizeof(nlmsgerr))) return std::nullopt;
  std::memcpy(&answer, bytes, std::min(sizeof answer, static_cast<std::size_t>(got)));
  return answer;
}

bool is_ours(uid_t uid) { return uid == 0 || uid == geteuid(); }

/// The system shows a socket that its process has closed as root's; state and inode are therefore checked
/// too.
bool is_open_and_ours(const inet_diag_msg& socket) {
  return socket.idiag_state == TCP_ESTABLISHED && socket.idiag_inode != 0 && is_ours(socket.idiag_uid);
}

/// One line of /proc/net/tcp or tcp6.
struct Row {
  Address local, remote;
  unsigned state = 0;
  uid_t uid = 0;
  std::uint64_t inode = 0;
};

/// `digits` are one or four words in the host's byte order. An IPv4 address is built as an IPv4-mapped IPv6
/// address, which Address unmaps.
Address address_of(std::string_view digits, std::uint16_t port) {
  constexpr std::size_t kDigits = 8;
  std::array<std::uint32_t, 4> words{0, 0, htonl(0xFFFF), 0};
  std::size_t word = digits.size() == kDigits ? 3 : 0;
  for (; digits.size() >= kDigits && word < words.size(); digits.remove_prefix(kDigits)) {
    std::from_chars(digits.data(), digits.data() + kDigits, words[word++], 16);
  }
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  std::memcpy(&address.sin6_addr, words.data(), sizeof address.sin6_addr);
  return {reinterpret_cast<const sockaddr*>(&address), sizeof address};
}

Row parse_row(const std::string& line) {
  char local[33] = {}, remote[33] = {};
  std::uint16_t local_port = 0, remote_port = 0;
  Row row;
  // Number, ends, state, queues, timer, retransmissions, user, timeout, inode.
  const int fields =
      std::sscanf(line.c_str(), "%*s %32[0-9A-F]:%hx %32[0-9A-F]:%hx %x %*s %*s %*s %u %*s %" SCNu64, local,
                  &local_port, remote, &remote_port, &row.state, &row.uid, &row.inode);
  if (fields != 7) return {};
  row.local = address_of(local, local_port);
  row.remote = address_of(remote, remote_port);
  return row;
}

std::optional<Row> find_row(const std::function<bool(const Row&)>& wanted) {
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      const Row row = parse_row(line);
      if (wanted(row)) return row;
    }
  }
  return std::nullopt;
}

bool is_process(const fs::path& path) {
  return path.filename().string().find_first_not_of("0123456789") == std::string::npos;
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
  return fmt::format("process {} ({})", process.filename().string(), name);
}

}  // namespace

bool verify_peer_uid(const Address& local, const Address& remote) {
  if (local.family() != remote.family()) return false;
  const auto answer = ask(question(local, remote));
  if (answer && answer->header.nlmsg_type == SOCK_DIAG_BY_FAMILY) return is_open_and_ours(answer->message);
  if (answer && answer->header.nlmsg_type == NLMSG_ERROR && answer->failure.error == -ENOENT) return false;
  const auto owner = owner_by_proc(local, remote);
  return owner && is_ours(*owner);
}

std::optional<uid_t> owner_by_proc(const Address& local, const Address& remote) {
  const auto row = find_row([&](const Row& each) {
    return each.state == TCP_ESTABLISHED && each.inode != 0 && each.local == local && each.remote == remote;
  });
  return row ? std::optional(row->uid) : std::nullopt;
}

std::string port_holder(std::uint16_t port) {
  const auto row =
      find_row([&](const Row& each) { return each.state == TCP_LISTEN && each.local.port() == port; });
  if (!row) return "";
  const std::string socket = fmt::format("socket:[{}]", row->inode);
  std::error_code failure;
  for (fs::directory_iterator entry("/proc", failure), end; !failure && entry != end;
       entry.increment(failure)) {
    if (is_process(entry->path()) && holds(entry->path(), socket)) return description(entry->path());
  }
  return "another user's process";
}

}  // namespace lockstep::net
