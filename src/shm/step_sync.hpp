#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "coordination/group_info.hpp"
#include "lockstep/core/error.hpp"
#include "shm/futex_event.hpp"
#include "shm/layout.hpp"
#include "shm/peer_connections.hpp"

namespace lockstep::shm {

/// A peer that this rank waits for has died, left or failed. The message says which one and why.
class PeerLost : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// This rank's own program has aborted the group. The message names the operation and says why.
class Aborted : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// Synchronizes the ranks of a host step by step. A collective consists of steps. In each step a rank writes
/// its own staging area, publishes the step's number and waits until all ranks have published it; then it may
/// read what the others wrote in that step.
///
/// Reading needs no second barrier, because each rank has two areas and alternates between them:
///
///     rank 0   write A  | step 1 |  read A, write B, wait .....  | step 2 |  read B, write A  | step 3 |
///     rank 1   write A  | step 1 |  read A ............ write B  | step 2 |  read B, write A  | step 3 |
///
/// Rank 0 may be past step 1 and write B while rank 1 still reads rank 0's A. It writes A again only after
/// step 2, which rank 1 publishes only when it has read A. Invariant: no rank is more than one step ahead of
/// another, so two areas are enough.
///
/// Publishing is one atomic store to the rank's own cache line, and waiting is loads of the others': a step
/// without contention costs no system call. A rank that waits spins for a while, then sleeps on a futex; the
/// last rank to publish wakes the sleepers, if there are any. A sleeper wakes every kSlice (50 ms) to check
/// whether the missing ranks are still alive (LivenessCheck).
///
/// The first step of a collective also verifies it: every rank compares the calls of all ranks, so that all
/// get the same error if they differ, before any result is written. After an error the group is unusable:
/// every later operation throws the same error again. One thread at a time.
class StepSync {
 public:
  StepSync(const GroupInfo& members, PeerConnections connections, net::Milliseconds timeout);

  int rank() const noexcept { return members_.rank; }
  int size() const noexcept { return members_.size(); }
  const GroupInfo& members() const noexcept { return members_; }
  const Layout& layout() const noexcept { return connections_.layout; }
  const std::vector<Peer>& peers() const noexcept { return connections_.peers; }
  net::Milliseconds timeout() const noexcept { return timeout_; }
  std::size_t staging_bytes() const noexcept { return layout().staging_bytes; }
  bool has_cpu_per_rank() const noexcept { return connections_.has_cpu_per_rank; }
  /// CPU of this rank's communication thread; -1: any.
  int communication_cpu() const noexcept { return connections_.communication_cpu; }
  const Segment& segment_of(int member) const noexcept {
    return *peers()[static_cast<std::size_t>(member)].segment;
  }
  Control& control(int member) const noexcept { return *controls_[static_cast<std::size_t>(member)]; }

  /// Begins the next operation and sets its sequence number. `heap_offset`: the buffer's offset as returned
  /// by Heap::offset_of(); -1 if it is not in the heap.
  void begin(Call call, std::int64_t heap_offset = -1);
  /// Sets the buffer of the operation's next piece. The other ranks see it after the next step, which
  /// verifies the call again.
  void show_buffer(std::int64_t heap_offset) noexcept;

  /// Publishes this rank's step and waits until the others have published theirs. Throws as Group does.
  void step();

  /// The staging area that this rank writes in the current step.
  std::byte* mine() const noexcept { return area(rank(), step_ + 1); }
  /// The staging area that `member` wrote in the previous step.
  const std::byte* of(int member) const noexcept { return area(member, step_); }
  /// What all ranks wrote at `offset` of that area, in rank order; `own`, unless null, replaces this rank's.
  std::vector<const void*> staged(std::size_t offset, const void* own = nullptr) const;
  /// Valid after the first step: the buffer of `member` in its heap; -1 or null if it is not in the heap.
  std::int64_t heap_offset_of(int member) const noexcept { return step_slot(member, step_).heap_offset; }
  std::byte* heap_buffer_of(int member) const noexcept;

  /// Marks the group as failed, here and for the others; throws CommunicationError with the text.
  [[noreturn]] void fail(const std::string& text);
  /// Same for an exception, which every later operation rethrows.
  void give_up(const std::exception_ptr& reason, const char* text) noexcept;

  /// Tells the others that this rank has failed, and why, even while another thread runs an operation. Any
  /// thread.
  void announce_failure(const char* reason) noexcept;

  /// Ends the operation that this rank runs or waits in, and every later one, with Aborted: at once, without
  /// the delay for a lost rank. What has been exchanged completely may still succeed. Ranks that are not
  /// aborted and need this one fail as when it has failed. The first call counts. Any thread; does not wait.
  void abort(const std::string& reason);
  /// Throws Aborted after abort(). `what` names this rank's operation. Any thread.
  void throw_if_aborted(const std::function<std::string()>& what) const;

  /// Why `member` has died or left; std::nullopt if it has not. Any thread.
  std::optional<std::string> loss_of(int member) const;
  /// The first of these ranks (of the world) known to have died or left, as text for messages; "": none. Any
  /// thread.
  std::string loss_among(const std::vector<int>& names) const;

  /// Tells the others that this rank has left. `quietly`: sleepers are not woken and notice it within kSlice.
  void leave(bool quietly) noexcept;

  /// The last call of this rank.
  const Call& own_call() const noexcept { return call_; }

 private:
  std::byte* area(int member, std::uint64_t step) const noexcept;
  StepSlot& step_slot(int member, std::uint64_t step) const noexcept;
  bool all_have_come();
  std::vector<int> missing() const;
  void wait_for_all();
  void compare_calls();
  void break_group(const char* failure_text) noexcept;

  GroupInfo members_;
  PeerConnections connections_;
  net::Milliseconds timeout_;
  Spinner spinner_;
  std::vector<Control*> controls_;
  Call call_;
  std::uint64_t step_ = 0;  // The last finished step.
  std::uint64_t sequence_ = 0;
  int first_missing_ = 0;
  bool compared_ = true;
  std::exception_ptr broken_;
  /// Of this rank's failure text, which the thread of an operation and another one may write.
  std::mutex failure_mutex_;
  mutable std::mutex abort_mutex_;
  std::string abort_reason_;
  std::atomic<bool> aborted_{false};
};

/// Checks, during one wait, that the awaited ranks are still alive.
class LivenessCheck {
 public:
  explicit LivenessCheck(const StepSync& sync) : sync_(sync), begun_(net::Clock::now()) {}

  /// Throws Aborted if this rank's group was aborted, PeerLost naming the rank if one of `missing` left the
  /// group, gave up or died, and TimeoutError after the timeout. `any`: any one of `missing` is enough, so it
  /// throws only if all of them are lost. `what`: this rank's operation, "all_reduce #3 (...)". Waits briefly
  /// before it reports a lost rank, so that the lost rank or its launcher can report the cause first.
  void check(const std::vector<int>& missing, bool any, const std::function<std::string()>& what);

 private:
  std::optional<std::string> fate_of(int rank) const;
  void check_time(const std::vector<int>& missing, const std::function<std::string()>& what) const;

  const StepSync& sync_;
  net::Deadline begun_;
  std::optional<net::Deadline> noticed_;
};

}  // namespace lockstep::shm
