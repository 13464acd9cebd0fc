#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace lockstep::launch {

using Json = nlohmann::json;

/// What agents say to each other: JSON objects with a "type". A node's agent says `join` once, then `failed`
/// as soon as one of its ranks fails, `ended` when none of its processes is left, `draining` when it is told
/// to end, `still` when none of its ranks moves, and `ping`. The coordinator says `start`, `stop` (`stacks`:
/// the ranks' are shown first), `standstill` (no rank of the job moves), `text` (a line for people), `report`
/// (lines for people, as they are), `finish` and `pong`; it asks `verify_peer_uid` for a connection from that
/// host, which is answered `peer_uid`. `stacks` asks the coordinator for those of all other nodes, and by the
/// coordinator for a node's own, which come as `stacks_of`. Unknown keys and types are ignored, so that a
/// later version may add some.
constexpr int kProtocolVersion = 1;

/// What an agent tells of its node when it joins.
struct NodeInfo {
  int version = kProtocolVersion;
  std::string run_id = {};
  std::string host = {};
  std::int64_t pid = 0;
  /// Only when the user gave one.
  std::optional<int> node_rank = {};
  int min_nodes = 1;
  int max_nodes = 1;
  int local_world_size = 1;
  std::string role = "default";
  /// It hears its first start and nothing else, and says when it has ended and nothing else: a Python agent.
  /// Not part of messages.
  bool mute = false;
  /// By how much its wall clock is ahead of the coordinator's, where that is known. Not part of messages
  /// either.
  std::optional<std::chrono::milliseconds> clock_ahead = {};
};

/// A node's place in one round: one start of all ranks of the job.
struct Assignment {
  /// Counts every start, whatever its reason; 1 is the first.
  int round = 1;
  /// Counts those that followed a failure.
  int restart_count = 0;
  int max_restarts = 0;
  int group_rank = 0;
  int group_world_size = 1;
  int first_rank = 0;
  int world_size = 1;
  int first_role_rank = 0;
  int role_world_size = 1;
};

Json to_message(const NodeInfo& node);
Json to_message(const Assignment& assignment);

/// Both throw DataError, naming the key, when the object is not of that form: another program's or another
/// version's.
NodeInfo read_node_info(const Json& message);
Assignment read_assignment(const Json& message);

/// The "type" of a message; empty when it has none.
std::string type_of(const Json& message);

/// "node 1 (host b, process 77)" for messages to people; without the number when it has none yet.
std::string describe(const NodeInfo& node, std::optional<int> group_rank = std::nullopt);

}  // namespace lockstep::launch
