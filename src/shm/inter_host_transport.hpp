#pragma once

#include <cstddef>
#include <functional>

#include "shm/collectives.hpp"

namespace lockstep::shm {

/// A way between the hosts: joins one rank of each, which carries values for the others of its host.
/// Implemented outside, so that this folder needs no network. Every host calls the same, in the same order;
/// failures throw Error.
class InterHostTransport {
 public:
  virtual ~InterHostTransport() = default;

  /// Tells the other hosts what the ranks of this one call. Does not wait.
  virtual void announce(const Call& call) = 0;
  /// Returns when all hosts have announced the same: nothing may be carried before. Throws on all of them
  /// when they have not.
  virtual void agree() = 0;

  /// In place; the same bits on all hosts. An average is the sum divided by the number of all ranks: a host
  /// gives its sum.
  virtual void all_reduce(void* data, Elements elements, Reduction reduction) = 0;
  /// In place at `root`; what the others' hold afterwards is of no use.
  virtual void reduce(void* data, Elements elements, Reduction reduction, int root) = 0;
  virtual void broadcast(void* data, std::size_t bytes, int root) = 0;
  /// `output` has `bytes` for each host.
  virtual void all_gather(const void* input, void* output, std::size_t bytes) = 0;

  /// Runs what goes between the hosts by other ways: its failures are told as a lane's.
  virtual void beside(const std::function<void()>& body) = 0;

  /// This rank has failed with these words and will call nothing more: the other hosts shall not wait.
  virtual void abandon(const char* failure_text) noexcept = 0;
};

}  // namespace lockstep::shm
