#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "shm/futex_event.hpp"
#include "shm/layout.hpp"
#include "shm/members.hpp"
#include "shm/peer_connections.hpp"

namespace lockstep::shm {

/// The rhythm of the collectives. An operation is a number of steps: in each, a rank writes its own staging
/// area, says that it is done, and waits until all have said so; after that it may read what the others wrote
/// in that step. There are two areas, used by turns: when a rank writes an area again, all have passed the
/// step in which it was read, so that no further waiting is needed.
///
/// In the first step of an operation the ranks compare what they were called with. Every rank compares all
/// calls, so that all get the same error when they differ, before any result has been written. After an error
/// the group is unusable: each later operation throws the same again. One thread at a time.
class StepSync {
 public:
  StepSync(const Members& members, PeerConnections connections, net::Milliseconds timeout);

  int rank() const noexcept { return members_.rank; }
  int size() const noexcept { return members_.size(); }
  const Members& members() const noexcept { return members_; }
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
  /// Begins a further part of the operation, with a buffer of its own.
  void begin_part(std::int64_t heap_offset);

  /// Ends this rank's part of a step and waits for the others'. Throws as Group does.
  void step();

  /// What this rank writes in the step at hand.
  std::byte* mine() const noexcept { return area(rank(), step_ + 1); }
  /// What `member` wrote in the step before.
  const std::byte* of(int member) const noexcept { return area(member, step_); }
  /// What `member` called, after the first step; and where its buffer lies.
  const Call& call_of(int member) const noexcept { return step_slot(member, step_).call; }
  std::int64_t heap_offset_of(int member) const noexcept { return step_slot(member, step_).heap_offset; }

  /// Makes the group unusable here and tells the others; throws CommunicationError(text).
  [[noreturn]] void fail(const std::string& text);
  /// The same because of an exception, which every later operation throws again.
  void give_up(const std::exception_ptr& reason, const char* text) noexcept;

  /// Tells the others, with these words, that this rank will not come again, while another thread may be at
  /// work here. Any thread.
  void announce_failure(const char* words) noexcept;

  /// Why one of these ranks, by their names, will not come to anything again; "" as far as is known. Any
  /// thread.
  std::string loss_among(const std::vector<int>& names) const;

  /// Tells the others that this rank will not come again. Does not wake those who sleep when `quietly`: they
  /// find out within a slice.
  void leave(bool quietly) noexcept;

  /// What this rank called last.
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

  Members members_;
  PeerConnections connections_;
  net::Milliseconds timeout_;
  Spinner spinner_;
  std::vector<Control*> controls_;
  Call call_;
  std::uint64_t step_ = 0;  // The last one that was finished.
  std::uint64_t sequence_ = 0;
  int first_missing_ = 0;
  bool compared_ = true;
  std::exception_ptr broken_;
};

std::string describe(const Call& call);

/// A rank, and what it calls.
struct Caller {
  std::string name;
  std::string call;
};
/// The words for two ranks that differ. `who`: the beginning of messages.
std::string disagreement(const std::string& who, const Caller& one, const Caller& other);

}  // namespace lockstep::shm
