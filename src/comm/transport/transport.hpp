#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <span>

#include "comm/diagnostics/op_meta.hpp"
#include "shm/collectives.hpp"

namespace lockstep {
class Store;
struct ProcessGroupOptions;
}  // namespace lockstep

namespace lockstep::shm {
class Group;
}

namespace lockstep::comm {

using shm::GroupInfo;

/// A message to or from one rank that is under way. Any thread may call any method.
class Message {
 public:
  virtual ~Message() = default;
  /// Whether it is known to have ended, well or badly.
  virtual bool is_done() = 0;
  /// Returns when it has ended; throws what made it fail, to each caller.
  virtual void wait(std::chrono::milliseconds timeout) = 0;
  /// Null: it has not failed as far as is known.
  virtual std::exception_ptr failure() const = 0;
  /// The rank it came from, when it has ended.
  virtual int source() const = 0;
};

/// How the ranks of a group move memory: Gloo, shared memory, or shared memory within the hosts and Gloo
/// between them.
///
/// Collectives block until this rank's result is there. They are called in the same order on every rank, each
/// after begin(), by one thread at a time; a transport that lets operations overlap says so
/// (OperationQueue::let_next_begin). `Elements` count what one rank gives. Failures throw: TimeoutError,
/// CommunicationError; the group is unusable afterwards.
class Transport {
 public:
  using Elements = shm::Elements;
  using Reduction = shm::Reduction;
  using Buffers = shm::Buffers;
  using ConstBuffers = shm::ConstBuffers;
  using Parts = std::span<const shm::Part>;

  virtual ~Transport() = default;

  /// "shm", "gloo", "shm+gloo".
  virtual const char* name() const = 0;
  /// How many operations are worth running at a time.
  virtual int concurrency() const { return 1; }
  /// What shares memory with this rank; null: nothing does.
  virtual shm::Group* memory() const { return nullptr; }

  /// Begins a collective. Transports that do not verify calls as a part of each operation may do it here:
  /// returns when all ranks have called the same, throws CommunicationError on all of them when they have
  /// not.
  virtual void begin(const CollectiveCall& call) { static_cast<void>(call); }

  /// In place; the same bits on every rank.
  virtual void all_reduce(void* data, Elements elements, Reduction reduction) = 0;
  /// In place at `root`.
  virtual void reduce(void* data, Elements elements, Reduction reduction, int root) = 0;
  /// `inputs` has a buffer for each rank.
  virtual void reduce_scatter(ConstBuffers inputs, void* output, Elements elements, Reduction reduction) = 0;
  virtual void broadcast(void* data, Elements elements, int root) = 0;
  /// `outputs` has a buffer for each rank.
  virtual void all_gather(const void* input, Buffers outputs, Elements elements) = 0;
  /// `outputs` is empty but at the root.
  virtual void gather(const void* input, Buffers outputs, Elements elements, int root) = 0;
  /// `inputs` is empty but at the root.
  virtual void scatter(ConstBuffers inputs, void* output, Elements elements, int root) = 0;
  /// Part r goes to rank r, and comes from it. Both sides of a pair agree on its size.
  virtual void all_to_all(Parts inputs, Parts outputs, shm::Dtype dtype) = 0;
  virtual void barrier() = 0;

  /// Null: the message is where its receiver finds it. Any thread.
  virtual std::unique_ptr<Message> send(const at::Tensor& tensor, int destination, int tag) = 0;
  /// `source`: -1 means any. Any thread.
  virtual std::unique_ptr<Message> recv(const at::Tensor& tensor, int source, int tag) = 0;
};

struct TransportOptions {
  /// The group's communication thread may get a CPU of its own, which is for the group of all ranks: parts of
  /// it do not know which CPUs the others have.
  bool binds = false;
  /// Hosts verify every call with each other, and Gloo alone verifies calls with a label. Ranks that share
  /// memory always verify theirs.
  bool verifies = true;
};

struct MadeTransport {
  std::unique_ptr<Transport> transport;
  int cpu = -1;  // Where the thread runs that communicates; -1: anywhere.
};

/// Shared memory where ranks of the group share it, Gloo between those that do not; or what the options ask
/// for. `store` has a key prefix that nobody else uses. *Collective*. Throws CommunicationError when shared
/// memory is asked for and the ranks do not share any, or when there is too little of it.
MadeTransport make_transport(const GroupInfo& info, const Store& store, const ProcessGroupOptions& options,
                             const TransportOptions& how);

}  // namespace lockstep::comm
