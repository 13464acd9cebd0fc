#pragma once

#include "net/address.hpp"

namespace lockstep::net {

/// Whether this host has a connected socket whose own end is `local` and whose far end is `remote`, held open
/// by a process of our own user or of root. What an agent answers a PeerUidRequest with: local is the
/// request's `peer`, remote its `local`. Asks the kernel (NETLINK_SOCK_DIAG), or reads /proc/net/tcp where it
/// does not answer. *Local*; any thread.
bool verify_peer_uid(const Address& local, const Address& remote);

}  // namespace lockstep::net
