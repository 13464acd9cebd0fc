#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "net/address.hpp"

namespace lockstep::net {

/// The inode of a socket that listens on the port, over IPv4 or IPv6; nothing when nobody does.
std::optional<std::uint64_t> listener_inode(std::uint16_t port);

/// The user who owns the connected socket of this host with these two ends; nothing when there is none, or
/// when its process has closed it (the system shows such a socket as root's). From /proc/net/tcp and tcp6.
std::optional<uid_t> owner_by_proc(const Address& local, const Address& remote);

}  // namespace lockstep::net
