#pragma once

#include "net/file_descriptor.hpp"

namespace lockstep::net {

/// A TCP socket that closes on exec and does not block; none with errno set when the system refuses.
FileDescriptor new_socket(int family);

/// Sets an option that may be missing on this system: what it gives is an improvement, not a need.
void set_option(int socket, int level, int name, int value);

/// Sends at once, and notices a host that has gone: asks after 10 s of silence, gives up after 30.
void set_stream_options(int socket);

}  // namespace lockstep::net
