#include "rendezvous/messages.hpp"

#include <fmt/core.h>

#include <cstdlib>
#include <type_traits>
#include <utility>

#include "core/json_text.hpp"
#include "core/text.hpp"
#include "lockstep/core/error.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

/// Larger numbers of ranks or nodes are errors or attacks.
constexpr std::int64_t kLargest = 1 << 24;
constexpr std::size_t kMostRanks = 1 << 16;
/// One month; a rank without progress for longer is an error.
constexpr std::int64_t kLongestTime = 31LL * 24 * 3600 * 1000;
/// Deeper nesting is not part of the protocol, and would need stack.
constexpr int kDeepest = 16;

/// Longer texts are shortened by the sender.
constexpr std::size_t kLongestText = 256 << 10;

/// The valid range of a type.
template <class Value>
constexpr std::pair<std::int64_t, std::int64_t> kBounds{0, kLargest};
template <>
constexpr std::pair<std::int64_t, std::int64_t> kBounds<std::int64_t>{INT64_MIN, INT64_MAX};
template <>
constexpr std::pair<std::int64_t, std::int64_t> kBounds<milliseconds>{0, kLongestTime};
template <>
constexpr std::pair<std::int64_t, std::int64_t> kBounds<std::uint16_t>{1, 65535};
template <>
constexpr std::pair<std::int64_t, std::int64_t> kBounds<char>{0, 127};
template <>
constexpr std::pair<std::int64_t, std::int64_t> kBounds<Activity>{1, 3};

template <class Value>
concept Number = (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>) || std::is_enum_v<Value> ||
                 std::is_same_v<Value, milliseconds>;

std::int64_t wall_clock() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<milliseconds>(since_1970).count();
}

/// Writes the fields of one message.
class Writer {
 public:
  template <class Value>
  void value(const char* key, const Value& value, int /*least*/ = 0) {
    message[key] = json(value);
  }
  template <class Value>
  void value(const char* key, const std::optional<Value>& value) {
    if (value) message[key] = json(*value);
  }
  /// This host's time when the message is sent.
  void clock(const char* key, const std::optional<milliseconds>&) { message[key] = wall_clock(); }

  Json message = Json::object();

 private:
  static Json json(milliseconds time) { return time.count(); }
  static Json json(const std::string& text) { return shorten_text(text, kLongestText); }
  static Json json(const net::Address& address) { return address.text(); }
  template <class Item>
  static Json json(const std::vector<Item>& items) {
    Json list = Json::array();
    for (const auto& item : items) list.push_back(json(item));
    return list;
  }
  template <class Value>
  static Json json(Value value) {
    if constexpr (std::is_convertible_v<Value, Json>) {
      return value;
    } else {
      Writer inner;
      visit_fields(inner, value);
      return std::move(inner.message);
    }
  }
};

/// Reads the fields of one message. Throws DataError that names the key if a value is missing or invalid.
/// Optional values, booleans and values of type Json may be missing.
class Reader {
 public:
  explicit Reader(const Json& message) : message_(message) {
    if (!message.is_object()) throw DataError("a message between launchers is not a JSON object.");
  }

  template <class Value>
  void value(const char* key, Value& value, int least = 0) const {
    constexpr bool may_be_missing = std::is_same_v<Value, bool> || std::is_same_v<Value, Json>;
    if (message_.contains(key)) {
      read(key, message_[key], value);
    } else if (!may_be_missing) {
      fail(key, "one");
    }
    if constexpr (std::is_same_v<Value, int>) {
      if (value < least) fail(key, "a larger number");
    }
  }
  template <class Value>
  void value(const char* key, std::optional<Value>& value) const {
    if (message_.contains(key)) read(key, message_[key], value.emplace());
  }
  /// By how much the sender's clock is ahead, not corrected for the transfer time; nullopt if the message has
  /// no time.
  void clock(const char* key, std::optional<milliseconds>& ahead) const {
    constexpr std::int64_t kMost = 1LL << 50;
    const auto time = message_.find(key);
    if (time == message_.end() || !time->is_number_integer()) return;
    const auto there = time->get<std::int64_t>();
    if (there > -kMost && there < kMost) ahead = milliseconds(there - wall_clock());
  }

 private:
  [[noreturn]] static void fail(const char* key, const char* expected) {
    throw formatted<DataError>(
        "a message between launchers has no valid '{}': expected {}. Use the same version of lockstep on "
        "every node.",
        key, expected);
  }

  static void read(const char* key, const Json& json, bool& flag) {
    if (!json.is_boolean()) fail(key, "true or false");
    flag = json.get<bool>();
  }
  template <Number Value>
  static void read(const char* key, const Json& json, Value& number) {
    if (!json.is_number_integer()) fail(key, "an integer");
    const auto found = json.get<std::int64_t>();
    if (found < kBounds<Value>.first || found > kBounds<Value>.second) fail(key, "a number within bounds");
    number = static_cast<Value>(found);
  }
  static void read(const char* key, const Json& json, std::uint64_t& number) {
    if (!json.is_number_unsigned()) fail(key, "an integer from 0");
    number = json.get<std::uint64_t>();
  }
  static void read(const char* key, const Json& json, std::string& text) {
    if (!json.is_string()) fail(key, "a string");
    text = json.get<std::string>();
  }
  /// "10.0.0.1:29400"; an empty address if invalid.
  static void read(const char* key, const Json& json, net::Address& address) {
    std::string text;
    read(key, json, text);
    const auto colon = text.rfind(':');
    if (colon == std::string::npos) return;
    const auto port = static_cast<std::uint16_t>(std::atoi(text.c_str() + colon + 1));
    address = net::Address::numeric(text.substr(0, colon), port).value_or(net::Address());
  }
  static void read(const char*, const Json& json, Json& any) { any = json; }
  template <class Item>
  static void read(const char* key, const Json& json, std::vector<Item>& items) {
    if (!json.is_array() || json.size() > kMostRanks) fail(key, "a list");
    for (const auto& item : json) read(key, item, items.emplace_back());
  }
  template <class Struct>
  static void read(const char*, const Json& json, Struct& value) {
    const Reader inner(json);
    visit_fields(inner, value);
  }

  const Json& message_;
};

// The fields of each type, for both directions. A key is the name of its field; LOCKSTEP_COUNT values are at
// least 1. A field that the list of a type leaves out does not compile, because a structured binding needs a
// name for each: LOCKSTEP_ALL_FIELDS lists those of a type of which not all are sent, or not all alike.
#define LOCKSTEP_ALL_FIELDS(Type, ...)                     \
  [[maybe_unused]] void name_all_fields(const Type& all) { \
    [[maybe_unused]] const auto& [__VA_ARGS__] = all;      \
  }                                                        \
  static_assert(std::is_aggregate_v<Type>)
#define LOCKSTEP_VALUE(field) form.value(#field, message.field);
#define LOCKSTEP_COUNT(field) form.value(#field, message.field, 1);
#define LOCKSTEP_VALUES(...) NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(LOCKSTEP_VALUE, __VA_ARGS__))
#define LOCKSTEP_COUNTS(...) NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(LOCKSTEP_COUNT, __VA_ARGS__))
#define LOCKSTEP_FIELDS(Type, ...)                                               \
  LOCKSTEP_ALL_FIELDS(Type, __VA_ARGS__);                                        \
  void visit_fields(auto& form, Type& message) { LOCKSTEP_VALUES(__VA_ARGS__); } \
  static_assert(true)
#define LOCKSTEP_NO_FIELDS(Type)     \
  void visit_fields(auto&, Type&) {} \
  static_assert(std::is_empty_v<Type>)

LOCKSTEP_FIELDS(net::HostPort, host, port);
LOCKSTEP_ALL_FIELDS(RankStatus, rank, process, still, status, process_state, beat, counters);
void visit_fields(auto& form, RankStatus& message) {
  LOCKSTEP_VALUES(rank, process, still, status, process_state, beat);
}
LOCKSTEP_FIELDS(ProcessFailure, rank, local_rank, pid, node, host, time, program, status, stopped, killed,
                message, error, error_file, oom_kills, peak_memory, hung, is_secondary, log_file, last_lines);
LOCKSTEP_FIELDS(RankFailed, round, failure);
LOCKSTEP_FIELDS(RankEnded, round, process, failure, is_spare);
LOCKSTEP_FIELDS(ReplaceRank, round, rank, process, replaces, is_spare);
LOCKSTEP_FIELDS(NotReplaced, round, rank);
LOCKSTEP_FIELDS(KillRank, round, rank, process, stacks_first);
LOCKSTEP_FIELDS(RoundEnded, round, ok, preempted, step, failures);
LOCKSTEP_FIELDS(StatusReport, round, ranks);
LOCKSTEP_FIELDS(Stacks, requester, text);
LOCKSTEP_FIELDS(PeerUidAnswer, id, ok);
LOCKSTEP_FIELDS(HangFound, round, text, ends_job, limit, rank, stuck);
LOCKSTEP_FIELDS(CollectStacks, requester);
LOCKSTEP_FIELDS(Notice, text);
LOCKSTEP_FIELDS(Report, text);
LOCKSTEP_FIELDS(Finish, exit_code, error);
LOCKSTEP_FIELDS(VerifyPeerUid, id, client, server);
LOCKSTEP_FIELDS(Reject, text);
LOCKSTEP_FIELDS(CoordinatorLost, text);
LOCKSTEP_NO_FIELDS(StacksRequest);
LOCKSTEP_NO_FIELDS(Ping);
LOCKSTEP_NO_FIELDS(Pong);

LOCKSTEP_ALL_FIELDS(HeartbeatRecord, pid, stack_signal, activity, what, number, step, beat_time);
void visit_fields(auto& form, HeartbeatRecord& message) {
  // The others mean something on the rank's host only.
  LOCKSTEP_VALUES(activity, what, number, step);
}

LOCKSTEP_ALL_FIELDS(NodeInfo, version, run_id, host, pid, node_rank, min_nodes, max_nodes, local_world_size,
                    role, program, arguments, own_store, is_torchrun, clock_ahead);
void visit_fields(auto& form, NodeInfo& message) {
  LOCKSTEP_VALUES(version, run_id, host);
  // The rest may differ in another version, which the coordinator refuses because of its number.
  if (message.version != kProtocolVersion) return;
  LOCKSTEP_VALUES(pid, node_rank, role, program, arguments, own_store);
  LOCKSTEP_COUNTS(min_nodes, local_world_size);
  form.value("max_nodes", message.max_nodes, message.min_nodes);
  // The coordinator sets is_torchrun itself, and computes clock_ahead.
  form.clock("wall_clock", message.clock_ahead);
}

LOCKSTEP_ALL_FIELDS(Draining, signal);
void visit_fields(auto& form, Draining& message) { LOCKSTEP_COUNTS(signal); }

LOCKSTEP_ALL_FIELDS(Assignment, round, restart_count, max_restarts, group_rank, group_world_size, first_rank,
                    world_size, first_role_rank, role_world_size, own_store, max_recoveries, replaces);
void visit_fields(auto& form, Assignment& message) {
  LOCKSTEP_VALUES(restart_count, max_restarts, group_rank, first_rank, first_role_rank, own_store,
                  max_recoveries, replaces);
  LOCKSTEP_COUNTS(round, group_world_size, world_size, role_world_size);
}

LOCKSTEP_ALL_FIELDS(StopRound, round, signal, at_once, stacks_first);
void visit_fields(auto& form, StopRound& message) {
  LOCKSTEP_VALUES(round, at_once, stacks_first);
  LOCKSTEP_COUNTS(signal);
}

/// Ranks may write anything, also what is not UTF-8.
std::string to_text(const Json& json) { return json_text(json); }

/// Removes details of failures that make the message too long.
void fit_into_message(Json& message) {
  Json& failures = message["failures"];
  std::size_t size = to_text(message).size();
  for (auto failure = failures.rbegin(); failure != failures.rend() && size > kLongestMessage / 2;
       ++failure) {
    size -= to_text(*failure).size();
    for (const char* detail : {"last_lines", "message"}) (*failure)[detail] = "";
    (*failure)["error"] = nullptr;
    size += to_text(*failure).size();
  }
  for (; failures.size() > 1 && size > kLongestMessage / 2; failures.erase(failures.size() - 1))
    size -= to_text(failures.back()).size();
}

template <class Variant>
std::string encode_any(const Variant& message) {
  Writer writer;
  std::visit(
      [&]<class Message>(Message each) {
        writer.message["type"] = Message::kType;
        visit_fields(writer, each);
        if constexpr (std::is_same_v<Message, RoundEnded>) fit_into_message(writer.message);
      },
      message);
  return to_text(writer.message);
}

template <class... Messages>
void read_any(const Json& json, std::optional<std::variant<Messages...>>& message) {
  const Reader reader(json);
  const auto type = json.value("type", Json());
  const auto read_if = [&]<class Message>(Message each) {
    if (type != Message::kType) return;
    visit_fields(reader, each);
    message = std::move(each);
  };
  (read_if(Messages{}), ...);
}

}  // namespace

std::string describe(const NodeInfo& node, std::optional<int> group_rank) {
  const std::string name = group_rank ? fmt::format("node {}", *group_rank) : "a node";
  return node.is_torchrun ? name + " (torchrun's agent)"
                          : fmt::format("{} (host {}, process {})", name, node.host, node.pid);
}

std::string encode(const NodeMessage& message) { return encode_any(message); }
std::string encode(const CoordinatorMessage& message) { return encode_any(message); }

template <class Message>
std::optional<Message> decode(const std::string& text) {
  const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= kDeepest; };
  std::optional<Message> message;
  read_any(Json::parse(text, shallow, false), message);
  return message;
}
template std::optional<NodeMessage> decode(const std::string& text);
template std::optional<CoordinatorMessage> decode(const std::string& text);

}  // namespace lockstep::launch
