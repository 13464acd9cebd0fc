#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "flight_recorder.hpp"
#include "lockstep/comm/diagnostics.hpp"
#include "lockstep/comm/store.hpp"
#include "membership.hpp"
#include "watch.hpp"

namespace lockstep::comm {

/// How many rows of its tensors an all_to_all gives to each rank, and takes from each.
struct RowCounts {
  std::vector<std::int64_t> gives;
  std::vector<std::int64_t> takes;
};

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
  /// `rows`: of an all_to_all; compared in `detail`.
  void before(const Ticket& ticket, const OperationFacts& facts, const RowCounts* rows = nullptr);

  /// The same with every message. Never waits: whoever comes second of the two ranks compares, and only in
  /// `detail`. What is received from any rank is not compared.
  void before_message(const OperationFacts& facts);

 private:
  /// What a rank posts of an operation.
  struct Claim {
    int place = 0;
    std::string is;
    std::string site;  // Where the program calls it; known in `detail` alone.
    RowCounts rows;
  };
  static Claim claim_in(const std::string& line);

  bool is_due(const OperationFacts& facts);
  std::string claim_of(const OperationFacts& facts) const;
  /// Whether all ranks have posted their claims within `limit`.
  bool post(std::uint64_t number, const Claim& claim, Milliseconds limit);
  std::vector<Claim> posted(std::uint64_t number) const;
  void compare_rows(std::uint64_t number, const std::vector<Claim>& claims) const;
  /// Ranks that have gone ahead without posting.
  void compare_reported(std::uint64_t number, const OperationFacts& facts) const;
  [[noreturn]] void refuse(std::uint64_t number, const Claim& own, const Claim& other) const;
  std::string name_of(int place) const;

  Store store_;
  Membership members_;
  std::string group_name_;
  CollectiveCheckLevel level_;
  Milliseconds timeout_;
  std::shared_ptr<Watch> watch_;
  std::unordered_set<std::uint64_t> met_;
  std::uint64_t last_number_ = 0;
  std::map<std::tuple<int, int, int>, std::uint64_t> messages_;  // From, to, tag: how many there were.
  std::set<int> open_tags_;                                      // Of messages received from any rank.
};

}  // namespace lockstep::comm
