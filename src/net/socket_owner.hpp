#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "net/address.hpp"

namespace lockstep::net {

// Whose a socket of this host is. Every function is *Local* and may be called from any thread.

/// Whether this host has a connected socket whose own end is `local` and whose far end is `remote`, held open
/// by a process of our own user or of root. What an agent answers a PeerUidRequest with: local is the
/// request's `peer`, remote its `local`. Asks the kernel (NETLINK_SOCK_DIAG), or reads /proc/net/tcp where it
/// does not answer.
bool verify_peer_uid(const Address& local, const Address& remote);

/// The user who owns the connected socket of this host with these two ends, from /proc/net/tcp and tcp6;
/// nothing when there is none, or when its process has closed it (the system shows such a socket as root's).
std::optional<uid_t> owner_by_proc(const Address& local, const Address& remote);

/// Who listens on a TCP port of this host, for an error's text: "process 1234 (python3)"; "another user's
/// process" where /proc does not show it; "" when nobody listens. Reads /proc, so it is slow.
std::string port_holder(std::uint16_t port);

}  // namespace lockstep::net
