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
#include "coordination/group_info.hpp"

namespace lockstep::comm {

/// Verifies what the ranks of a group are about to call, before data is communicated, by dissemination: in
/// round k each rank sends all it knows to rank + 2^k. After the last round it knows the calls of all ranks,
/// and all find the same two that differ.
///
/// It has its own connections, which the waiting thread reads itself: between two ranks this takes the time
/// of one small message. Messages over Gloo take three times as long, because Gloo's thread reads them and
/// wakes the waiting one. One thread at a time, except close().
class FingerprintExchange {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// Connects the ranks. `store` must have a key prefix that nobody else uses; `address`: where the others
  /// reach this rank. *Collective*. Throws TimeoutError, CommunicationError.
  FingerprintExchange(const Store& store, GroupInfo members, const std::string& address,
                      const ProcessGroupOptions& options);

  /// Sends what this rank is about to call, "all_reduce #412 (float32, 1000 elements, sum)". The number is
  /// only for messages and not compared, because calls that were rejected on one rank count too. Does not
  /// wait. `timeout`: 0 means the group's.
  void announce(const std::string& call, Milliseconds timeout = Milliseconds(0));

  /// Waits until all ranks have announced the same. Throws CommunicationError on all of them if the calls
  /// differ, LibraryTimeout if a rank does not announce in time, std::runtime_error if one is gone. Each
  /// later call throws the same error.
  void agree(Milliseconds timeout = Milliseconds(0));

  /// Closes the connections, so that the exchanges of the other ranks fail. Any thread.
  void close() noexcept;

 private:
  /// A rank's call. Of fixed size, so that one read is enough.
  struct CollectiveFingerprint {
    std::int32_t caller = -1;
    std::array<char, 188> call{};

    bool operator!=(const CollectiveFingerprint& other) const;
  };
  /// Of the ranks known so far: the call of the first one, and the first call that differs.
  struct Known {
    CollectiveFingerprint first;
    CollectiveFingerprint other;
  };
  struct Round {
    net::FileDescriptor to;
    net::FileDescriptor from;
  };

  void accept_all(int listener, const std::string& nonce, net::Deadline deadline);
  bool take_greeting(net::FileDescriptor socket, const std::string& nonce, net::Deadline deadline);
  static Known merged(const Known& one, const Known& another);
  net::Deadline deadline_in(Milliseconds timeout) const;
  void send(Round& round, net::Deadline deadline);
  [[noreturn]] void refuse();
  template <class Body>
  void guarded(const Body& body);

  GroupInfo members_;
  Milliseconds timeout_;
  std::vector<Round> rounds_;
  Known known_;
  std::exception_ptr broken_;
};

}  // namespace lockstep::comm
