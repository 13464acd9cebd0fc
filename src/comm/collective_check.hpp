#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <unordered_set>

#include "flight_recorder.hpp"
#include "lockstep/comm/diagnostics.hpp"
#include "lockstep/comm/store.hpp"
#include "membership.hpp"
#include "watch.hpp"

namespace lockstep::comm {

/// Compares what the ranks of a group are about to do, through the store, before data moves.
///
/// With `first_use` each rank decides by itself whether to compare: at combinations that it has not met. It
/// never waits long for ranks that do not compare: a rank that comes later finds what this one has posted,
/// and one that has gone ahead is asked through the watch. So ranks that decide differently do not hang each
/// other.
class CollectiveCheck {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// `group_name` is the group's name in the recorder; `timeout` bounds the wait of `detail`.
  CollectiveCheck(Store store, Membership members, std::string group_name, CollectiveCheckLevel level,
                  Milliseconds timeout, std::shared_ptr<Watch> watch);

  /// To be called with every collective that this rank is about to start. Throws CommunicationError when
  /// another rank does something else, TimeoutError (with `detail`) when one does not come in time.
  void before(const Ticket& ticket, const OperationFacts& facts);

 private:
  bool is_due(const OperationFacts& facts);
  std::string claim_of(const OperationFacts& facts) const;
  /// Whether all ranks have posted their claims within `limit`.
  bool post(std::uint64_t number, const std::string& claim, Milliseconds limit);
  void compare_posted(std::uint64_t number, const OperationFacts& facts) const;
  /// Ranks that have gone ahead without posting.
  void compare_reported(std::uint64_t number, const OperationFacts& facts) const;
  [[noreturn]] void refuse(std::uint64_t number, const std::string& own, int other,
                           const std::string& others) const;

  Store store_;
  Membership members_;
  std::string group_name_;
  CollectiveCheckLevel level_;
  Milliseconds timeout_;
  std::shared_ptr<Watch> watch_;
  std::unordered_set<std::uint64_t> met_;
  std::uint64_t last_number_ = 0;
};

}  // namespace lockstep::comm
