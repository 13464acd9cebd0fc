#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "shm/futex_event.hpp"
#include "shm/group_info.hpp"
#include "shm/layout.hpp"
#include "shm/peer_connections.hpp"

namespace lockstep::shm {

/// Synchronises the ranks of a host step by step. A collective is a number of steps. In each step a rank
/// writes its own staging area, publishes the step's number and waits until all ranks have published it; then
/// it may read what the others wrote in that step. Each rank has two areas and alternates between them:
/// before a rank overwrites an area, all ranks have passed the step in which they read it, so no second
/// barrier is needed.
///
/// The first step of a collective also verifies it: every rank compares the calls of all ranks, so that all
/// get the same error when they differ, before any result is written. After an error the group is unusable:
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
  /// Where this rank's communication thread is to run; -1: anywhere.
  int communication_cpu() const noexcept { return connections_.communication_cpu; }

  /// Begins the next operation; its sequence number is filled in. `heap_offset`: where in this rank's heap
  /// the buffer lies, else -1.
  void begin(Call call, std::int64_t heap_offset = -1);
  /// Begins a further piece of the same operation, with another buffer.
  void begin_part(std::int64_t heap_offset);

  /// Publishes this rank's step and waits until the others have published theirs. Throws as Group does.
  void step();

  /// The staging area that this rank writes in the current step.
  std::byte* mine() const noexcept { return area(rank(), step_ + 1); }
  /// The staging area that `member` wrote in the previous step.
  const std::byte* of(int member) const noexcept { return area(member, step_); }
  /// After the first step: the call of `member`, and where in its heap its buffer lies.
  const Call& call_of(int member) const noexcept { return step_slot(member, step_).call; }
  std::int64_t heap_offset_of(int member) const noexcept { return step_slot(member, step_).heap_offset; }

  /// Marks the group as failed, here and for the others; throws CommunicationError(text).
  [[noreturn]] void fail(const std::string& text);
  /// The same for an exception, which every later operation throws again.
  void give_up(const std::exception_ptr& reason, const char* text) noexcept;

  /// Tells the others that this rank has failed, and why, even while another thread is inside an operation.
  /// Any thread.
  void announce_failure(const char* reason) noexcept;

  /// Which of these ranks (numbers in the world) has died or left, as a text for messages; "": none is known
  /// to. Any thread.
  std::string loss_among(const std::vector<int>& names) const;

  /// Tells the others that this rank has left. `quietly` wakes no sleeper: they notice within kSlice.
  void leave(bool quietly) noexcept;

  /// The last call of this rank.
  const Call& own_call() const noexcept { return call_; }
  /// "all_reduce #3 (float32, 1000 elements, sum)".
  std::string describe_own_call() const;

 private:
  std::byte* area(int member, std::uint64_t step) const noexcept;
  StepSlot& step_slot(int member, std::uint64_t step) const noexcept;
  Control& control(int member) const noexcept { return *controls_[static_cast<std::size_t>(member)]; }
  bool all_have_come();
  std::vector<int> missing() const;
  void wait_for_all();
  void compare_calls();
  void show(std::int64_t heap_offset);
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
};

std::string describe(const Call& call);

/// A rank and its call, for messages.
struct Caller {
  std::string name;
  std::string call;
};
/// The error text for two ranks whose calls differ. `who`: the beginning of messages.
std::string disagreement(const std::string& who, const Caller& one, const Caller& other);

}  // namespace lockstep::shm
