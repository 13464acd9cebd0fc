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

// What ranks exchange while they connect: notes in the job's store, then greetings over local sockets.

/// Where ranks that are not connected yet leave notes: a namespace of the job's store that nobody else uses.
/// Implemented elsewhere, so that this folder does not depend on the store.
class BootstrapStore {
 public:
  virtual ~BootstrapStore() = default;
  virtual void post(const std::string& key, const std::string& value) = 0;
  /// Waits for the note. Throws TimeoutError if the deadline passes first.
  virtual std::string read(const std::string& key, net::Deadline deadline) = 0;
  /// Throws if the ranks shall no longer be waited for. Asked every 50 ms.
  virtual void check_wait() {}
};

/// What ranks that can share memory must have in common: the running kernel (its boot id), the network
/// namespace, in which abstract sockets live, and the user.
std::string host_identity();

/// What a rank publishes about itself in the bootstrap store.
struct PeerAddress {
  std::string host;       // host_identity(): ranks with the same value try to share memory.
  std::string host_name;  // For messages.
  std::string socket;     // Abstract name of its Unix socket.
  std::string secret;     // Proves that a peer has read this address.
  Processors processors;
  std::string pid_namespace;  // The kernel's name of it; empty: not known.

  /// This rank's own, with a new socket name and secret. `host`: replaces host_identity() unless empty.
  /// `threads`: number of its computing threads.
  static PeerAddress make(const std::string& host, int threads);
  static PeerAddress read(const std::string& text);
  std::string text() const;
};

/// The ranks that a rank has connected to.
struct ConnectReport {
  std::string reached;  // A digit per rank of the group; 1: connected.
  std::string trouble;  // Why it could not create its segment; empty: none.
  std::string failure;  // The first connection error.

  static ConnectReport read(const std::string& text);
  std::string text() const;
};

// Unix sockets between processes of one host. Their names are abstract: they have no file and disappear with
// the process. Failures throw CommunicationError; if a deadline passes, TimeoutError.

net::FileDescriptor listen_locally(const std::string& name);
net::FileDescriptor connect_locally(const std::string& name, net::Deadline deadline);
/// Does not wait. Empty if no process, or one of another user, has connected.
net::FileDescriptor accept_locally(int listener);

/// Waits until the listener or some of the sockets are readable, and returns their indices in `sockets`; the
/// listener's index is sockets.size(). Empty if the deadline passes first.
std::vector<std::size_t> wait_for_any(int listener, const std::vector<net::FileDescriptor>& sockets,
                                      net::Deadline deadline);

/// The process at the other end, as reported by the kernel. A pid of 0: in another pid namespace.
struct PeerProcess {
  pid_t pid;
  uid_t uid;
};
PeerProcess process_at(int socket);

/// What one rank sends to another, together with its segment's descriptor.
struct Greeting {
  std::uint64_t magic;
  std::int32_t rank;
  std::int32_t pid;
  std::uint64_t size;
  std::uint64_t token;
  char proof[32];  // The secret that the receiver posted in the store.
};

void send_greeting(int socket, const Greeting& greeting, int descriptor);

struct Received {
  Greeting greeting;
  net::FileDescriptor descriptor;
};
Received receive_greeting(int socket, net::Deadline deadline);

}  // namespace lockstep::shm
