#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "net/address.hpp"

namespace lockstep::net {

// Owners of this host's sockets. All functions are *Local* and may be called from any thread.

/// Whether this host has a connected socket with the local end `local` and the remote end `remote`, held open
/// by a process of this user or of root. An agent answers a PeerUidRequest with it: `local` is the request's
/// `peer`, `remote` its `local`. Asks the kernel (NETLINK_SOCK_DIAG), or reads /proc/net/tcp if that does not
/// answer.
bool verify_peer_uid(const Address& local, const Address& remote);

/// The user who owns this host's connected socket with these two ends, from /proc/net/tcp and tcp6; nothing
/// if there is none, or if its process has closed it (the system shows such a socket as root's).
std::optional<uid_t> owner_by_proc(const Address& local, const Address& remote);

/// The process that listens on a TCP port of this host, for error texts: "process 1234 (python3)"; "another
/// user's process" if /proc does not show it; "" if no process listens. Reads /proc, so it is slow.
std::string port_holder(std::uint16_t port);

}  // namespace lockstep::net
