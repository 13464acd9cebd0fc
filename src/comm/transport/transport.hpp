#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <string>

#include "comm/diagnostics/op_meta.hpp"
#include "coordination/group_info.hpp"
#include "shm/collective.hpp"

namespace lockstep {
class Store;
struct ProcessGroupOptions;
}  // namespace lockstep

namespace lockstep::shm {
class Group;
}

namespace lockstep::comm {

/// A message in flight to or from one rank. Any thread may call any method.
class Message {
 public:
  virtual ~Message() = default;
  /// Whether it is known to have ended, successfully or not.
  virtual bool is_done() = 0;
  /// Returns when it has ended; throws its failure, to each caller.
  virtual void wait(std::chrono::milliseconds timeout) = 0;
  /// Null: no failure is known.
  virtual std::exception_ptr failure() const = 0;
  /// The rank that sent it, after it has ended.
  virtual int source() const = 0;
};

/// How the ranks of a group communicate: over Gloo, through shared memory, or through shared memory within
/// the hosts and Gloo between them.
///
/// Collectives block until this rank's result is available. They are called in the same order on every rank,
/// each after begin(), by one thread at a time. A transport whose operations may overlap calls
/// OperationQueue::let_next_begin(). Failures throw TimeoutError or
/// CommunicationError; the group is unusable afterwards.
class Transport {
 public:
  virtual ~Transport() = default;

  /// "shm", "gloo", "shm+gloo".
  virtual const char* name() const = 0;
  /// Which ranks share memory with each other, which decides in what order sums are taken: the same text on
  /// all ranks.
  virtual std::string layout() const { return name(); }
  /// The useful number of concurrent operations.
  virtual int concurrency() const { return 1; }
  /// The shared memory of this rank; null: none.
  virtual shm::Group* memory() const { return nullptr; }

  /// Begins a collective. Transports that do not verify calls within each operation may do so here: returns
  /// when all ranks have made the same call; throws CommunicationError on all of them if the calls differ.
  virtual void begin(const CollectiveCall& call) { static_cast<void>(call); }

  /// Runs a collective, one of those that begin() has announced. An all_reduce gives the same bits on every
  /// rank.
  virtual void run(const shm::Collective& collective) = 0;

  /// Null: the message is already available to its receiver. Any thread.
  virtual std::unique_ptr<Message> send(const at::Tensor& tensor, int destination, int tag) = 0;
  /// `source`: -1 means any. Any thread.
  virtual std::unique_ptr<Message> recv(const at::Tensor& tensor, int source, int tag) = 0;

  /// Ends the operations and messages under way, and all later ones, with an error. Other ranks find this
  /// one's connections closed. Any thread; does not wait. The first call counts.
  virtual void abort(const std::string& reason) = 0;
};

struct TransportOptions {
  /// Whether the communication thread may be pinned to its own CPU. Only for the group of all ranks:
  /// subgroups do not know the CPUs of the other ranks.
  bool binds = false;
  /// Verify every call between hosts, and calls with a label on Gloo alone. Ranks that share memory always
  /// verify their calls.
  bool verifies = true;
};

struct MadeTransport {
  std::unique_ptr<Transport> transport;
  int cpu = -1;  // CPU of the communication thread; -1: any.
};

/// Shared memory between ranks of the group that share it and Gloo between the others, or the backend in
/// `options`. `store` must have a key prefix that nobody else uses. *Collective*. Throws CommunicationError
/// if shared memory is required but not all ranks share it, or if there is too little of it.
MadeTransport make_transport(const GroupInfo& info, const Store& store, const ProcessGroupOptions& options,
                             const TransportOptions& how);

}  // namespace lockstep::comm
