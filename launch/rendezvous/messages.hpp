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

/// What the agents of a job's nodes and its coordinator send each other. In one process these structs are
/// handed over as they are; between hosts they are JSON objects whose "type" is their kType, written and read
/// at the socket.

/// A node's connection, as long as it lasts. Numbers are never used again.
using NodeId = std::int64_t;

constexpr int kProtocolVersion = 4;

/// Between two lines to people about who is awaited.
constexpr std::chrono::seconds kNoticeInterval{10};

/// From a node, once and first: who it is. Answered by nothing, or by Reject.
struct NodeInfo {
  static constexpr const char* kType = "join";
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
  /// What its ranks run: the file or module without its folder, and the arguments as people read them.
  std::string program = {};
  std::string arguments = {};
  /// Where rank 0 serves the ranks' own store if it is on this node; nothing: the coordinator serves one.
  std::optional<net::HostPort> own_store = {};
  /// It is a torchrun agent: it takes its first start and nothing else, and reports its end and nothing else.
  /// Not sent.
  bool is_torchrun = false;
  /// By how much its wall clock is ahead of the coordinator's, where that is known. Not sent: the clock is.
  std::optional<std::chrono::milliseconds> clock_ahead = {};
};

/// A rank failed. Sent for the first one of a round.
struct RankFailed {
  static constexpr const char* kType = "failed";
  int round = 0;
  ProcessFailure failure;
};

/// None of the processes of that round is left on the node.
struct RoundEnded {
  static constexpr const char* kType = "ended";
  int round = 0;
  bool ok = false;
  /// Every rank that did not succeed saved its state because it was asked to.
  bool preempted = false;
  /// The most optimizer steps that a rank has done; nothing without heartbeats.
  std::optional<std::uint64_t> step = {};
  /// One for each rank where the round failed; the first is that of the rank that failed first.
  std::vector<ProcessFailure> failures = {};
};

/// How all ranks of the node are now: about once a second while they run, and when all have succeeded.
struct StatusReport {
  static constexpr const char* kType = "status";
  int round = 0;
  std::vector<RankStatus> ranks = {};
};

/// The node was told by that signal to end.
struct Draining {
  static constexpr const char* kType = "draining";
  int signal = 0;
};

/// The node's user wants to see the stacks of all other nodes' ranks.
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

using NodeMessage = std::variant<NodeInfo, RankFailed, RoundEnded, StatusReport, Draining, StacksRequest,
                                 Stacks, Ping, PeerUidAnswer>;

/// To a node: its place in one round, which begins now. A round is one start of all ranks of the job.
struct Assignment {
  static constexpr const char* kType = "start";
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
  /// Where rank 0 serves the ranks' own store; nothing: the coordinator's serves them.
  std::optional<net::HostPort> own_store = {};
};

/// The ranks of the round are to end.
struct StopRound {
  static constexpr const char* kType = "stop";
  int round = 0;
  int signal = 0;
  /// Their state cannot be saved any more: ranks that would do so at a signal do not try.
  bool at_once = false;
  /// Their stacks are shown first: a rank has waited for others in vain.
  bool stacks_first = false;
};

/// No rank of the job moves.
struct HangFound {
  static constexpr const char* kType = "hang";
  int round = 0;
  std::string text = {};
  /// It has lasted for `limit` and ends the job, in the name of `rank`; nothing: no rank runs.
  bool ends_job = false;
  std::chrono::milliseconds limit{0};
  std::optional<int> rank = {};
  /// The ranks to look at; none: all of them.
  std::vector<int> stuck = {};
};

/// The stacks of the node's ranks are wanted.
struct CollectStacks {
  static constexpr const char* kType = "collect_stacks";
  NodeId requester = 0;
};

/// A line for people, to be printed behind the launcher's name.
struct Notice {
  static constexpr const char* kType = "notice";
  std::string text = {};
};

/// Lines for people, to be printed as they are.
struct Report {
  static constexpr const char* kType = "report";
  std::string text = {};
};

/// The job is over, or the node may go.
struct Finish {
  static constexpr const char* kType = "finish";
  int exit_code = 0;
  /// The content of the root cause's error file; null: it left none.
  nlohmann::json error;
};

struct Pong {
  static constexpr const char* kType = "pong";
};

/// Whether the process at the `client` end of a connection from this host is of our user or root.
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

/// The coordinator is gone, or could not be reached. Never sent: CoordinatorClient says it.
struct CoordinatorLost {
  static constexpr const char* kType = "lost";
  std::string text = {};
};

using CoordinatorMessage = std::variant<Assignment, StopRound, HangFound, CollectStacks, Notice, Report,
                                        Finish, Pong, VerifyPeerUid, Reject, CoordinatorLost>;

/// Longer messages are refused on both sides.
constexpr std::size_t kLongestMessage = 1 << 20;

/// The JSON text of a message. Failures of many ranks that would make it too long lose their details, those
/// of the last ranks first, and then whole records go.
std::string encode(const NodeMessage& message);
std::string encode(const CoordinatorMessage& message);

/// Reads a NodeMessage or a CoordinatorMessage. Nothing for a type that is not known, so that a later version
/// may add some; keys that are not known are passed over. Throws DataError, naming the key, for what is not
/// of that form: another program's or another version's.
template <class Message>
std::optional<Message> decode(const std::string& text);

/// For std::visit with a lambda for each type.
template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

/// "node 1 (host b, process 77)" for messages to people; without the number when it has none yet.
std::string describe(const NodeInfo& node, std::optional<int> group_rank);

}  // namespace lockstep::launch
