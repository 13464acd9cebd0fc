#pragma once

#include <cstddef>
#include <functional>

#include "shm/collectives.hpp"

namespace lockstep::shm {

/// A transport between hosts (a lane): connects one rank of each host, which transfers data for the others of
/// its host. Implemented outside, so that this folder needs no network. Every host makes the same calls in
/// the same order; failures throw Error.
class InterHostTransport {
 public:
  virtual ~InterHostTransport() = default;

  /// Sends the call of this host's ranks to the other hosts. Does not wait.
  virtual void announce(const Call& call) = 0;
  /// Returns when all hosts have announced the same call: no data may be sent before. Throws on all hosts
  /// when the calls differ.
  virtual void agree() = 0;

  /// In place; the same bits on all hosts. An average is the sum divided by the number of all ranks: a host
  /// gives its sum.
  virtual void all_reduce(void* data, Elements elements, Reduction reduction) = 0;
  /// In place at `root`; the buffers of the others are undefined afterwards.
  virtual void reduce(void* data, Elements elements, Reduction reduction, int root) = 0;
  virtual void broadcast(void* data, std::size_t bytes, int root) = 0;
  /// `output` has `bytes` for each host.
  virtual void all_gather(const void* input, void* output, std::size_t bytes) = 0;

  /// Runs an operation that uses another transport between the hosts, with this lane's handling of errors.
  virtual void beside(const std::function<void()>& body) = 0;

  /// Tells the other hosts that this rank has failed, so that they stop waiting for it.
  virtual void abandon(const char* failure_text) noexcept = 0;
};

}  // namespace lockstep::shm
