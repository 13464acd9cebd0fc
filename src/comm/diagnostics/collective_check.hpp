#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "comm/diagnostics/flight_recorder.hpp"
#include "coordination/rank_session.hpp"
#include "lockstep/comm/store.hpp"

namespace lockstep::comm {

/// The number of rows that an all_to_all sends to each rank and receives from each.
struct RowCounts {
  std::vector<std::int64_t> gives;
  std::vector<std::int64_t> takes;
};

/// What a rank posts about an operation.
struct PostedCall {
  int member = 0;
  std::string is;
  std::string site;  // Where the program calls it; not compared.
  RowCounts rows;
};

/// Compares in detail what the ranks of a group are about to call, through the store, before data is
/// communicated: shapes, labels, and the split sizes of an all_to_all. Each collective waits for all ranks.
class CollectiveCheck {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// `timeout` limits the wait for the other ranks.
  CollectiveCheck(const Store& store, GroupInfo members, Milliseconds timeout);

  /// To be called before every collective. Throws CommunicationError if another rank calls something else,
  /// TimeoutError if a rank does not arrive in time. `rows`: for an all_to_all.
  void before(const OperationId& id, const OpMeta& meta, const RowCounts* rows = nullptr);

  /// To be called before every message. Never waits: the later of sender and receiver compares. Messages
  /// received from any rank are not compared.
  void before_message(const OpMeta& meta);

 private:
  /// Returns whether all ranks have posted their calls in time.
  bool post(std::uint64_t number, const PostedCall& call);
  std::vector<PostedCall> posted(std::uint64_t number) const;
  void compare_rows(std::uint64_t number, const std::vector<PostedCall>& calls) const;
  [[noreturn]] void refuse(std::uint64_t number, const PostedCall& own, const PostedCall& other) const;

  coordination::RankSession session_;
  Milliseconds timeout_;
  std::uint64_t last_number_ = 0;
  std::map<std::tuple<int, int, int>, std::uint64_t> messages_;  // From, to, tag: number of messages.
  std::set<int> open_tags_;                                      // Used by a receive from any rank.
};

}  // namespace lockstep::comm
