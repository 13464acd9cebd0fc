#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "net/deadline.hpp"
#include "net/file_descriptor.hpp"

namespace lockstep::shm {

// Sockets between processes of one host. Their names are abstract: no file, gone with the process.
// Failures throw CommunicationError; a deadline that passes, TimeoutError.

net::FileDescriptor listen_locally(const std::string& name);
net::FileDescriptor connect_locally(const std::string& name, net::Deadline deadline);
/// Does not wait. None: nobody, or nobody of this user, has connected.
net::FileDescriptor accept_locally(int listener);

/// Waits until the listener or one of the sockets has something to read, and returns which: numbers of
/// `sockets`, their count standing for the listener. Nothing: the deadline has come first.
std::vector<std::size_t> wait_for_any(int listener, const std::vector<net::FileDescriptor>& sockets,
                                      net::Deadline deadline);

/// Who is at the other end, as the kernel says. A pid of 0: a process of another pid namespace.
struct PeerProcess {
  pid_t pid;
  uid_t uid;
};
PeerProcess process_at(int socket);

/// What one rank sends to another, beside the descriptor of its segment.
struct Greeting {
  std::uint64_t magic;
  std::int32_t rank;
  std::int32_t pid;
  std::uint64_t size;
  std::uint64_t token;
  char proof[32];  // The secret that the receiver left on the store.
};

void send_greeting(int socket, const Greeting& greeting, int descriptor);

struct Received {
  Greeting greeting;
  net::FileDescriptor descriptor;
};
Received receive_greeting(int socket, net::Deadline deadline);

}  // namespace lockstep::shm
