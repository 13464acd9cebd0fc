#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "comm/diagnostics/flight_recorder.hpp"
#include "comm/store_session.hpp"
#include "lockstep/comm/store.hpp"

namespace lockstep::comm {

/// How many rows of its tensors an all_to_all gives to each rank, and takes from each.
struct RowCounts {
  std::vector<std::int64_t> gives;
  std::vector<std::int64_t> takes;
};

/// What a rank posts of an operation.
struct PostedCall {
  int place = 0;
  std::string is;
  std::string site;  // Where the program calls it.
  RowCounts rows;
};

/// Compares what the ranks of a group are about to do in all detail, through the store, before data moves:
/// shapes, labels and where the program calls, and what is given to whom. Each operation waits for all ranks.
class CollectiveCheck {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// `timeout` bounds the wait for the other ranks.
  CollectiveCheck(Store store, GroupInfo members, Milliseconds timeout);

  /// To be called with every collective that this rank is about to start. Throws CommunicationError when
  /// another rank does something else, TimeoutError when one does not come in time. `rows`: of an all_to_all.
  void before(const OperationId& id, const OpMeta& meta, const RowCounts* rows = nullptr);

  /// The same with every message. Never waits: whoever comes second of the two ranks compares. What is
  /// received from any rank is not compared.
  void before_message(const OpMeta& meta);

 private:
  /// Whether all ranks have posted their calls in time.
  bool post(std::uint64_t number, const PostedCall& call);
  std::vector<PostedCall> posted(std::uint64_t number) const;
  void compare_rows(std::uint64_t number, const std::vector<PostedCall>& calls) const;
  [[noreturn]] void refuse(std::uint64_t number, const PostedCall& own, const PostedCall& other) const;

  Store store_;
  GroupInfo members_;
  Milliseconds timeout_;
  std::uint64_t last_number_ = 0;
  std::map<std::tuple<int, int, int>, std::uint64_t> messages_;  // From, to, tag: how many there were.
  std::set<int> open_tags_;                                      // Of messages received from any rank.
};

}  // namespace lockstep::comm
