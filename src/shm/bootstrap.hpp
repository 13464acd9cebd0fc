#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "net/deadline.hpp"
#include "net/file_descriptor.hpp"
#include "shm/communication_cpu.hpp"

namespace lockstep::shm {

// What ranks tell each other while they connect: notes in the job's store, then greetings over local sockets.

/// Where ranks that cannot talk to each other yet leave notes: a namespace of the job's store that nobody
/// else uses. Implemented outside, so that this folder needs no store.
class BootstrapStore {
 public:
  virtual ~BootstrapStore() = default;
  virtual void post(const std::string& key, const std::string& value) = 0;
  /// Waits for the note; throws TimeoutError when the deadline comes first.
  virtual std::string read(const std::string& key, net::Deadline deadline) = 0;
};

/// What two ranks must have in common before it is worth trying whether they share memory: the kernel that
/// runs (its boot id), the network namespace, in which abstract sockets live, and the user.
std::string host_identity();

/// What a rank publishes about itself in the bootstrap store.
struct PeerAddress {
  std::string host;       // host_identity(): ranks with the same one try to share memory.
  std::string host_name;  // For messages.
  std::string socket;     // Abstract name of its local socket.
  std::string secret;     // Proves that a peer has read this address.
  Processors processors;

  /// This rank's own, with a new socket name and secret. `host`: instead of host_identity(), unless empty.
  /// `threads`: how many of them compute.
  static PeerAddress make(const std::string& host, int threads);
  static PeerAddress read(const std::string& text);
  std::string text() const;
};

/// Which ranks a rank has connected to.
struct ConnectReport {
  std::string reached;  // A digit for each rank of the group: 1, connected.
  std::string trouble;  // Why it could not create its segment; empty: it could.
  std::string failure;  // The first connection error.

  static ConnectReport read(const std::string& text);
  std::string text() const;
};

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
