#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "failure/failure_analysis.hpp"
#include "failure/hang.hpp"
#include "net/address.hpp"

namespace lockstep::launch {

/// The messages between the agents of a job's nodes and its coordinator. Within a process, these structs are
/// passed as they are. Between hosts they are JSON objects whose "type" is their kType.

/// Identifies a node's connection. Ids are never reused.
using NodeId = std::int64_t;

constexpr int kProtocolVersion = 6;

/// Time between two notices about missing nodes.
constexpr std::chrono::seconds kNoticeInterval{10};

/// The first message of a node, sent once. The answer is nothing, or Reject.
struct NodeInfo {
  static constexpr const char* kType = "join";
  int version = kProtocolVersion;
  std::string run_id = {};
  std::string host = {};
  std::int64_t pid = 0;
  /// Only if the user gave one.
  std::optional<int> node_rank = {};
  int min_nodes = 1;
  int max_nodes = 1;
  int local_world_size = 1;
  std::string role = "default";
  /// What its ranks run: the file or module without its folder, and the arguments as text.
  std::string program = {};
  std::string arguments = {};
  /// Address of the ranks' own store if rank 0 is on this node and serves it; nullopt: the coordinator serves
  /// one.
  std::optional<net::HostPort> own_store = {};
  /// A torchrun agent: after its first start it accepts no messages, and it reports only its end. Not sent.
  bool is_torchrun = false;
  /// By how much its wall clock is ahead of the coordinator's, if known. Not sent; computed from the sender's
  /// clock, which is.
  std::optional<std::chrono::milliseconds> clock_ahead = {};
};

/// Sent for the first failed rank of a round.
struct RankFailed {
  static constexpr const char* kType = "failed";
  int round = 0;
  ProcessFailure failure;
};

/// The process of a rank has ended, also if it succeeded: sent instead of RankFailed if ranks may be
/// replaced.
struct RankEnded {
  static constexpr const char* kType = "rank_ended";
  int round = 0;
  /// The number of the rank's process: how often it was replaced before.
  int process = 0;
  ProcessFailure failure = {};
  /// It was a spare that had not taken its rank's place.
  bool is_spare = false;
};

/// No process of that round is left on the node.
struct RoundEnded {
  static constexpr const char* kType = "ended";
  int round = 0;
  bool ok = false;
  /// Every rank that did not succeed saved its state because it was asked to.
  bool preempted = false;
  /// The largest number of optimizer steps that a rank has completed; nullopt without heartbeats.
  std::optional<std::uint64_t> step = {};
  /// If the round failed: one per rank, by local rank, or only that of a rank that could not be started.
  std::vector<ProcessFailure> failures = {};
};

/// The status of all ranks of the node: sent about once a second while they run, and when all have succeeded.
struct StatusReport {
  static constexpr const char* kType = "status";
  int round = 0;
  std::vector<RankStatus> ranks = {};
};

/// The node was asked to end by that signal.
struct Draining {
  static constexpr const char* kType = "draining";
  int signal = 0;
};

/// The node's user requests the stacks of all other nodes' ranks.
struct StacksRequest {
  static constexpr const char* kType = "stacks_request";
};

/// The answer to CollectStacks.
struct Stacks {
  static constexpr const char* kType = "stacks";
  NodeId requester = 0;
  std::string text = {};
};

struct Ping {
  static constexpr const char* kType = "ping";
};

/// The answer to VerifyPeerUid.
struct PeerUidAnswer {
  static constexpr const char* kType = "peer_uid";
  std::uint64_t id = 0;
  bool ok = false;
};

using NodeMessage = std::variant<NodeInfo, RankFailed, RankEnded, RoundEnded, StatusReport, Draining,
                                 StacksRequest, Stacks, Ping, PeerUidAnswer>;

/// Starts another process of a rank, whose process has ended; a spare of that number takes its place instead.
struct ReplaceRank {
  static constexpr const char* kType = "replace_rank";
  int round = 0;
  int rank = 0;
  int process = 0;
  /// The value of LOCKSTEP_REPLACES for it.
  std::string replaces = {};
  /// It waits beside the rank's process, which has not ended.
  bool is_spare = false;
};

/// Starts a round on a node, and assigns its ranks. A round is one start of all ranks of the job.
struct Assignment {
  static constexpr const char* kType = "start";
  /// Counts every start, for whatever reason; the first is 1.
  int round = 1;
  /// Counts starts after a failure.
  int restart_count = 0;
  int max_restarts = 0;
  int group_rank = 0;
  int group_world_size = 1;
  int first_rank = 0;
  int world_size = 1;
  int first_role_rank = 0;
  int role_world_size = 1;
  /// Address of the ranks' own store, which rank 0 serves; nullopt: the coordinator's launcher serves one.
  std::optional<net::HostPort> own_store = {};
  /// How often lost ranks of this round may be replaced; 0: never.
  int max_recoveries = 0;
  /// The node takes the place of a lost one of the running round: what its processes are, by local rank.
  std::vector<ReplaceRank> replaces = {};
};

/// The ranks of the round must end.
struct StopRound {
  static constexpr const char* kType = "stop";
  int round = 0;
  int signal = 0;
  /// Their state cannot be saved any more: ranks that save it on a signal do not try.
  bool at_once = false;
  /// Print their stacks first: a rank has waited for others until its timeout.
  bool stacks_first = false;
};

/// The process of that rank that has ended, as RankEnded has told, is the last one: no other takes its place.
struct NotReplaced {
  static constexpr const char* kType = "not_replaced";
  int round = 0;
  int rank = 0;
};

/// Kills that process of a rank.
struct KillRank {
  static constexpr const char* kType = "kill_rank";
  int round = 0;
  int rank = 0;
  int process = 0;
  /// The stacks of all ranks are printed before.
  bool stacks_first = false;
};

/// No rank of the job makes progress.
struct HangFound {
  static constexpr const char* kType = "hang";
  int round = 0;
  std::string text = {};
  /// The hang has lasted for `limit` and ends the job as a failure of `rank`; nullopt: no rank runs.
  bool ends_job = false;
  std::chrono::milliseconds limit{0};
  std::optional<int> rank = {};
  /// The ranks whose stacks are needed; empty: all.
  std::vector<int> stuck = {};
};

/// Requests the stacks of the node's ranks.
struct CollectStacks {
  static constexpr const char* kType = "collect_stacks";
  NodeId requester = 0;
};

/// A line for the user, printed after the launcher's name.
struct Notice {
  static constexpr const char* kType = "notice";
  std::string text = {};
};

/// Lines for the user, printed as they are.
struct Report {
  static constexpr const char* kType = "report";
  std::string text = {};
};

/// The job is over, or the node may leave.
struct Finish {
  static constexpr const char* kType = "finish";
  int exit_code = 0;
  /// The content of the root cause's error file, or a text if no rank is the cause; null: there is none.
  nlohmann::json error;
};

struct Pong {
  static constexpr const char* kType = "pong";
};

/// Asks whether the process at the `client` end of a connection from this host belongs to our user or root.
struct VerifyPeerUid {
  static constexpr const char* kType = "verify_peer_uid";
  std::uint64_t id = 0;
  net::Address client;
  net::Address server;
};

/// The node cannot be part of the job.
struct Reject {
  static constexpr const char* kType = "reject";
  std::string text = {};
};

/// The connection to the coordinator is lost, or could not be made. Never sent; created by CoordinatorClient.
struct CoordinatorLost {
  static constexpr const char* kType = "lost";
  std::string text = {};
};

using CoordinatorMessage =
    std::variant<Assignment, StopRound, ReplaceRank, NotReplaced, KillRank, HangFound, CollectStacks, Notice,
                 Report, Finish, Pong, VerifyPeerUid, Reject, CoordinatorLost>;

/// Longer messages are refused by sender and receiver.
constexpr std::size_t kLongestMessage = 1 << 20;

/// The JSON text of a message. If failures of many ranks would make it too long, details are left out, those
/// of the last ranks first, then whole records.
std::string encode(const NodeMessage& message);
std::string encode(const CoordinatorMessage& message);

/// Reads a NodeMessage or a CoordinatorMessage. Returns nullopt for an unknown type, so that a later version
/// may add some; unknown keys are ignored. Throws DataError that names the key if the format is wrong: a
/// message of another program or another version.
template <class Message>
std::optional<Message> decode(const std::string& text);

/// For std::visit with a lambda for each type.
template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

/// "node 1 (host b, process 77)", for messages; "a node (...)" if it has no number yet.
std::string describe(const NodeInfo& node, std::optional<int> group_rank);

}  // namespace lockstep::launch
