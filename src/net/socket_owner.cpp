#include "net/socket_owner.hpp"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "net/deadline.hpp"
#include "net/file_descriptor.hpp"
#include "net/socket_table.hpp"

namespace lockstep::net {
namespace {

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

/// Nothing: the kernel did not answer the question.
std::optional<Answer> ask(const Question& asked) {
  constexpr Milliseconds kPatience{500};
  const FileDescriptor socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!socket || send(socket.get(), &asked, sizeof asked, 0) < 0) return std::nullopt;
  if (!await_ready(socket.get(), POLLIN, Clock::now() + kPatience)) return std::nullopt;
  alignas(nlmsghdr) char bytes[4096];
  const ssize_t got = recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  Answer answer{};
  if (got < static_cast<ssize_t>(sizeof(nlmsghdr) + sizeof(nlmsgerr))) return std::nullopt;
  std::memcpy(&answer, bytes, std::min(sizeof answer, static_cast<std::size_t>(got)));
  return answer;
}

bool is_ours(uid_t uid) { return uid == 0 || uid == geteuid(); }

/// A socket that its process has closed is shown as root's, hence the questions for its state and its inode.
bool is_open_and_ours(const inet_diag_msg& socket) {
  return socket.idiag_state == TCP_ESTABLISHED && socket.idiag_inode != 0 && is_ours(socket.idiag_uid);
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

}  // namespace lockstep::net
