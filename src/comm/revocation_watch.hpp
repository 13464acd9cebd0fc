#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "lockstep/comm/process_group.hpp"

namespace lockstep::comm {

/// Ends a generation of a group on all ranks as soon as one of them, or who watches the processes, has found
/// that it must end. Without it, ranks notice a failure only by their own connections, one after the other.
///
/// On each rank a thread waits for a key of the store, as the PeerMonitor's does: nothing is sent until the
/// generation is revoked, which is one request whatever the number of ranks. Destroy it before the group is
/// formed again, and make another one for the next generation.
class RevocationWatch {
 public:
  /// `store`: the same prefix on all ranks, which nobody else uses; it gets keys per generation. Opens two
  /// connections, one of them for the thread.
  RevocationWatch(const Store& store, const ProcessGroup& group)
      : RevocationWatch(store, group, group.generation(), nullptr) {}
  /// The same for a `generation` that the group is about to be formed as: it can be revoked meanwhile.
  /// `on_revoked` is called before the group is aborted, by the thread that watches.
  RevocationWatch(const Store& store, const ProcessGroup& group, std::uint64_t generation,
                  std::function<void(const std::string& why)> on_revoked);
  /// Ends the thread.
  ~RevocationWatch();
  RevocationWatch(const RevocationWatch&) = delete;
  RevocationWatch& operator=(const RevocationWatch&) = delete;

  /// All ranks abort their operations, with the reason of the first call on any rank. Throws
  /// CommunicationError if the store cannot be reached. One thread at a time.
  void revoke(const std::string& why);
  /// Whether it was revoked: this rank has aborted the group, or is about to.
  bool is_revoked() const noexcept;

 private:
  struct Shared;

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace lockstep::comm
