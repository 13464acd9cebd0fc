#pragma once

#include <chrono>
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "lockstep/comm/process_group.hpp"
#include "shm/collectives.hpp"

namespace lockstep::comm {

/// c10d's Gloo over TCP, for memory instead of tensors. Collectives return when this rank's part is done;
/// their `timeout` is 0 for the connection's own. Failures throw LibraryTimeout when time was up, else what
/// Gloo throws.
///
/// An operation of an OperationQueue lets the next one begin as soon as it has been started.
///
/// float16 and bfloat16 travel as they are and are rounded by each rank; int16, which Gloo does not know,
/// travels as int32; a bool as a byte.
class GlooConnection {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using Elements = shm::Elements;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  /// Connects `size` ranks, of which `store` gives the address that this one offers. *Collective*.
  GlooConnection(const Store& store, int rank, int size, const ProcessGroupOptions& options);

  int rank() const { return gloo_->getRank(); }
  int size() const { return gloo_->getSize(); }

  void all_reduce(void* data, Elements elements, shm::Reduction reduction, Milliseconds timeout);
  void reduce(void* data, Elements elements, shm::Reduction reduction, int root, Milliseconds timeout);
  void broadcast(void* data, std::size_t bytes, int root, Milliseconds timeout);
  void all_gather(const void* input, shm::Buffers outputs, std::size_t bytes, Milliseconds timeout);
  /// `output` has `bytes` for each rank.
  void all_gather(const void* input, void* output, std::size_t bytes, Milliseconds timeout);
  void gather(const void* input, shm::Buffers outputs, std::size_t bytes, int root, Milliseconds timeout);
  void scatter(shm::ConstBuffers inputs, void* output, std::size_t bytes, int root, Milliseconds timeout);
  /// Slices of one piece of memory each; sizes in bytes.
  void all_to_all(const void* input, void* output, std::vector<std::int64_t> input_sizes,
                  std::vector<std::int64_t> output_sizes, Milliseconds timeout);
  void barrier(Milliseconds timeout);

  WorkPointer send(const at::Tensor& tensor, int destination, int tag);
  /// `source`: -1 means any.
  WorkPointer recv(const at::Tensor& tensor, int source, int tag);
  /// Waits for a message.
  void wait(c10d::Work& message, Milliseconds timeout) const;

  /// Closes the connections, so that the operations of all ranks fail.
  void close();

 private:
  template <class Start>
  void run(Milliseconds timeout, const Start& start);
  template <class Carry>
  void reduced(void* data, Elements elements, const Carry& carry);

  c10::intrusive_ptr<c10d::Backend> gloo_;
  Milliseconds timeout_;
};

/// The address by which other ranks reach this one: that of the interface that was chosen for Gloo, else the
/// store's. Empty: all ranks are on this host.
std::string offered_address(const Store& store, const ProcessGroupOptions& options, int size);

/// A tensor that is a view of memory.
at::Tensor view_of(const void* data, shm::Elements elements);

}  // namespace lockstep::comm
