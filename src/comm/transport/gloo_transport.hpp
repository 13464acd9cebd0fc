#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "comm/transport/fingerprint_exchange.hpp"
#include "comm/transport/transport.hpp"
#include "coordination/group_info.hpp"
#include "lockstep/comm/process_group.hpp"

namespace lockstep::comm {

/// c10d's Gloo over TCP. Failures throw LibraryTimeout on timeout, otherwise Gloo's exceptions.
///
/// An operation of an OperationQueue lets the next one begin as soon as it has been started.
///
/// float16 and bfloat16 are sent as they are and rounded by each rank; int16, which Gloo does not support, is
/// sent as int32 in reductions; bool is sent as a byte.
class GlooTransport final : public Transport {
 public:
  /// Connects the ranks. `store` provides the address that this rank offers. *Collective*.
  GlooTransport(const Store& store, const GroupInfo& members, const ProcessGroupOptions& options);

  /// From now on each call that has a label is verified before its data is communicated: the buckets of
  /// DistributedDataParallel, which all ranks label alike. Verifying other calls would cost too much.
  void verify_by(std::unique_ptr<FingerprintExchange> fingerprints) {
    fingerprints_ = std::move(fingerprints);
  }

  const char* name() const override { return "gloo"; }
  int concurrency() const override { return 2; }
  /// Sets the timeout of this thread's next operations to the call's; if it is 0, the connection's applies.
  void begin(const CollectiveCall& call) override;

  void run(const shm::Collective& collective) override;

  std::unique_ptr<Message> send(const at::Tensor& tensor, int destination, int tag) override;
  std::unique_ptr<Message> recv(const at::Tensor& tensor, int source, int tag) override;

  void abort(const std::string& reason) override;
  /// Ends the operations of all ranks: closes the connections. Any thread.
  void close() { gloo_->abort(); }

 private:
  std::chrono::milliseconds call_timeout() const;
  template <class Options>
  Options timed(Options options) const;
  template <class Start>
  void wait_for(const Start& start);
  template <class Transfer>
  void reduce_with(const shm::Collective& collective, const Transfer& transfer);
  void all_reduce(const shm::Collective& collective);
  void reduce(const shm::Collective& collective);
  void reduce_scatter(const shm::Collective& collective);
  void broadcast(const shm::Collective& collective);
  void all_gather(const shm::Collective& collective);
  void gather(const shm::Collective& collective);
  void scatter(const shm::Collective& collective);
  void all_to_all(const shm::Collective& collective);
  void barrier();

  c10::intrusive_ptr<c10d::Backend> gloo_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<FingerprintExchange> fingerprints_;  // Null: calls are not verified.
};

/// Verifies calls over the network that Gloo uses; null for a single rank, which has nothing to compare.
/// `store` has a key prefix that only these members use. *Collective*.
std::unique_ptr<FingerprintExchange> fingerprint_exchange(const Store& store, const GroupInfo& members,
                                                          const ProcessGroupOptions& options);

/// A tensor that views this memory.
at::Tensor view_of(const void* data, shm::Elements elements);

}  // namespace lockstep::comm
