#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "net/deadline.hpp"
#include "net/file_descriptor.hpp"
#include "shm/group_info.hpp"

namespace lockstep::comm {

/// Verifies what the ranks of a group are about to call, before data moves, by dissemination: in round k each
/// sends all it knows to rank + 2^k, so that after the last round it knows of all ranks, and all find the
/// same two that differ.
///
/// Over connections of its own, which the thread that waits reads itself: for two ranks this takes the time
/// of one small message. Gloo's take three times as long, because its own thread reads them and wakes the one
/// that waits. One thread at a time, but for close().
class FingerprintExchange {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// Connects the ranks. `store` has a key prefix that nobody else uses; `address`: where the others reach
  /// this rank. *Collective*. Throws TimeoutError, CommunicationError.
  FingerprintExchange(const Store& store, shm::GroupInfo members, const std::string& address,
                      const ProcessGroupOptions& options);

  /// Says what this rank is about to call, "all_reduce #412 (float32, 1000 elements, sum)". The number is for
  /// people, and not compared: a rank whose start has failed by its arguments has counted it. Does not wait.
  /// `timeout`: else the group's.
  void announce(const std::string& call, Milliseconds timeout = Milliseconds(0));

  /// Waits until all ranks have announced the same. Throws CommunicationError on all of them when they have
  /// not, LibraryTimeout when one does not come in time, std::runtime_error when one is gone; each later call
  /// throws the same again.
  void agree(Milliseconds timeout = Milliseconds(0));

  /// Ends the connections, so that the others' exchanges fail. Any thread.
  void close() noexcept;

 private:
  /// What a rank calls: of fixed size, so that one read is enough.
  struct CollectiveFingerprint {
    std::int32_t caller = -1;
    std::array<char, 188> call{};

    bool operator!=(const CollectiveFingerprint& other) const;
  };
  /// Of the ranks that this one has heard of: what the first one calls, and the first of those that differ.
  struct Known {
    CollectiveFingerprint first;
    CollectiveFingerprint other;
  };
  struct Round {
    net::FileDescriptor to;
    net::FileDescriptor from;
  };

  void accept_all(int listener, const std::string& nonce, net::Deadline deadline);
  static Known merged(const Known& one, const Known& another);
  net::Deadline deadline_in(Milliseconds timeout) const;
  void send(Round& round, net::Deadline deadline);
  [[noreturn]] void refuse();
  template <class Body>
  void guarded(const Body& body);

  shm::GroupInfo members_;
  Milliseconds timeout_;
  std::vector<Round> rounds_;
  Known known_;
  std::exception_ptr broken_;
};

}  // namespace lockstep::comm
