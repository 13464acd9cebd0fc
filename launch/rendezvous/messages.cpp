#include "rendezvous/messages.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <type_traits>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

/// More ranks or nodes than this are a mistake or a lie.
constexpr std::int64_t kLargest = 1 << 24;
constexpr std::size_t kMostRanks = 1 << 16;
/// A month; a rank that has not moved for longer is a lie.
constexpr std::int64_t kLongestStill = 31LL * 24 * 3600 * 1000;
/// Deeper nesting is not of this protocol, and would cost stack.
constexpr int kDeepest = 16;

/// What a number may be, and how long a text. Longer texts are cut where they are written, and refused where
/// they are read.
struct Limits {
  std::int64_t least = 0;
  std::int64_t most = kLargest;
  std::size_t longest = 4096;
};

template <class Value>
concept Number = (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>) || std::is_enum_v<Value>;

std::int64_t wall_clock() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<milliseconds>(since_1970).count();
}

/// Writes the values of one message under their keys.
class Writer {
 public:
  template <class Value>
  void value(const char* key, const Value& value, const Limits& limits = {}) {
    message[key] = json(value, limits);
  }
  template <class Value>
  void value(const char* key, const std::optional<Value>& value, const Limits& limits = {}) {
    if (value) message[key] = json(*value, limits);
  }
  /// This host's time, as the message is sent now.
  void clock(const char* key, const std::optional<milliseconds>&) { message[key] = wall_clock(); }

  Json message = Json::object();

 private:
  static Json json(milliseconds time, const Limits&) { return time.count(); }
  static Json json(const std::string& text, const Limits& limits) { return text.substr(0, limits.longest); }
  static Json json(const net::Address& address, const Limits&) { return address.text(); }
  template <class Item>
  static Json json(const std::vector<Item>& items, const Limits& limits) {
    Json list = Json::array();
    for (const auto& item : items) list.push_back(json(item, limits));
    return list;
  }
  template <class Value>
  static Json json(Value value, const Limits&) {
    if constexpr (std::is_convertible_v<Value, Json>) {
      return value;
    } else {
      Writer inner;
      fields(inner, value);
      return std::move(inner.message);
    }
  }
};

/// Reads them back. Throws DataError, naming the key, for what is missing or not of its form; switches, and
/// values of any kind, may be missing.
class Reader {
 public:
  explicit Reader(const Json& message) : message_(message) {
    if (!message.is_object()) throw DataError("a message between launchers is no JSON object.");
  }

  template <class Value>
  void value(const char* key, Value& value, const Limits& limits = {}) const {
    constexpr bool may_be_missing = std::is_same_v<Value, bool> || std::is_same_v<Value, Json>;
    if (message_.contains(key)) {
      read(key, message_[key], value, limits);
    } else if (!may_be_missing) {
      fail(key, "one");
    }
  }
  template <class Value>
  void value(const char* key, std::optional<Value>& value, const Limits& limits = {}) const {
    if (message_.contains(key)) read(key, message_[key], value.emplace(), limits);
  }
  /// By how much the clock of the host that sent the message is ahead, its way included; nothing where it
  /// tells no time.
  void clock(const char* key, std::optional<milliseconds>& ahead) const {
    constexpr std::int64_t kMost = 1LL << 50;
    const auto time = message_.find(key);
    if (time == message_.end() || !time->is_number_integer()) return;
    const auto there = time->get<std::int64_t>();
    if (there > -kMost && there < kMost) ahead = milliseconds(there - wall_clock());
  }

 private:
  [[noreturn]] static void fail(const char* key, const char* expected) {
    throw DataError(
        fmt::format("a message between launchers has no valid '{}': expected {}. Use the same version of "
                    "lockstep on every node.",
                    key, expected));
  }

  static void read(const char* key, const Json& json, bool& flag, const Limits&) {
    if (!json.is_boolean()) fail(key, "true or false");
    flag = json.get<bool>();
  }
  static std::int64_t integer(const char* key, const Json& json, const Limits& limits) {
    if (!json.is_number_integer()) fail(key, "a whole number");
    const auto number = json.get<std::int64_t>();
    if (number < limits.least || number > limits.most) fail(key, "a number within bounds");
    return number;
  }
  template <Number Value>
  static void read(const char* key, const Json& json, Value& number, const Limits& limits) {
    number = static_cast<Value>(integer(key, json, limits));
  }
  static void read(const char* key, const Json& json, std::uint64_t& number, const Limits&) {
    if (!json.is_number_unsigned()) fail(key, "a whole number from 0");
    number = json.get<std::uint64_t>();
  }
  static void read(const char* key, const Json& json, milliseconds& time, const Limits& limits) {
    time = milliseconds(integer(key, json, limits));
  }
  static void read(const char* key, const Json& json, std::string& text, const Limits& limits) {
    if (!json.is_string()) fail(key, "a text");
    text = json.get<std::string>();
    if (text.size() > limits.longest) fail(key, "a shorter text");
  }
  /// "10.0.0.1:29400"; no address for what is none.
  static void read(const char* key, const Json& json, net::Address& address, const Limits& limits) {
    std::string text;
    read(key, json, text, limits);
    const auto colon = text.rfind(':');
    if (colon == std::string::npos) return;
    const auto port = static_cast<std::uint16_t>(std::atoi(text.c_str() + colon + 1));
    address = net::Address::numeric(text.substr(0, colon), port).value_or(net::Address());
  }
  static void read(const char*, const Json& json, Json& any, const Limits&) { any = json; }
  template <class Item>
  static void read(const char* key, const Json& json, std::vector<Item>& items, const Limits& limits) {
    if (!json.is_array() || json.size() > kMostRanks) fail(key, "a list");
    for (const auto& item : json) read(key, item, items.emplace_back(), limits);
  }
  template <class Struct>
  static void read(const char*, const Json& json, Struct& value, const Limits&) {
    const Reader inner(json);
    fields(inner, value);
  }

  const Json& message_;
};

/// Texts for people, stacks among them.
constexpr Limits kLongText{.longest = kLongestMessage};

// The values of each type, once for both directions.

void fields(auto& form, net::HostPort& where) {
  form.value("host", where.host);
  form.value("port", where.port, {.least = 1, .most = 65535});
}

void fields(auto& form, HeartbeatRecord& beat) {
  form.value("activity", beat.activity, {.least = 1, .most = 3});
  form.value("what", beat.what);
  form.value("number", beat.number);
  form.value("step", beat.step);
}

void fields(auto& form, RankStatus& rank) {
  form.value("rank", rank.rank);
  form.value("place", rank.place);
  form.value("still", rank.still, {.most = kLongestStill});
  form.value("status", rank.status, {.most = 0xffff});
  form.value("process_state", rank.process_state, {.most = 127});
  form.value("beat", rank.beat);
}

void fields(auto& form, ProcessFailure& failure) {
  constexpr Limits kAny{.least = INT64_MIN, .most = INT64_MAX};
  // What a rank wrote is bounded where it is read, and grows where it is no UTF-8.
  constexpr Limits kRanksText{.longest = 64 * 1024};
  form.value("rank", failure.rank);
  form.value("local_rank", failure.local_rank);
  form.value("pid", failure.pid, {.most = INT32_MAX});
  form.value("node", failure.node);
  form.value("host", failure.host);
  form.value("time", failure.time, kAny);
  form.value("program", failure.program, kRanksText);
  form.value("status", failure.status, {.most = 0xffff});
  form.value("stopped", failure.stopped);
  form.value("killed", failure.killed);
  form.value("message", failure.message, kRanksText);
  form.value("error", failure.error);
  form.value("error_file", failure.error_file, kRanksText);
  form.value("oom_kills", failure.oom_kills, kAny);
  form.value("peak_memory", failure.peak_memory, kAny);
  form.value("hung", failure.hung);
  form.value("is_secondary", failure.is_secondary);
  form.value("log_file", failure.log_file, kRanksText);
  form.value("last_lines", failure.last_lines, kRanksText);
}

void fields(auto& form, NodeInfo& node) {
  form.value("version", node.version);
  form.value("run_id", node.run_id);
  form.value("host", node.host);
  // What follows may look otherwise in another version, which the coordinator refuses by its number.
  if (node.version != kProtocolVersion) return;
  form.value("pid", node.pid);
  form.value("node_rank", node.node_rank);
  form.value("min_nodes", node.min_nodes, {.least = 1});
  form.value("max_nodes", node.max_nodes, {.least = node.min_nodes});
  form.value("local_world_size", node.local_world_size, {.least = 1});
  form.value("role", node.role);
  form.value("program", node.program);
  form.value("arguments", node.arguments);
  form.value("own_store", node.own_store);
  form.clock("wall_clock", node.clock_ahead);
}

void fields(auto& form, RankFailed& failed) {
  form.value("round", failed.round);
  form.value("failure", failed.failure);
}

void fields(auto& form, RoundEnded& ended) {
  form.value("round", ended.round);
  form.value("ok", ended.ok);
  form.value("preempted", ended.preempted);
  form.value("step", ended.step);
  form.value("failures", ended.failures);
}

void fields(auto& form, StatusReport& report) {
  form.value("round", report.round);
  form.value("ranks", report.ranks);
}

void fields(auto& form, Draining& draining) { form.value("signal", draining.signal, {.least = 1}); }

void fields(auto&, StacksRequest&) {}

void fields(auto& form, Stacks& stacks) {
  form.value("for", stacks.requester, {.most = INT64_MAX});
  form.value("text", stacks.text, kLongText);
}

void fields(auto&, Ping&) {}

void fields(auto& form, PeerUidAnswer& answer) {
  form.value("id", answer.id);
  form.value("ok", answer.ok);
}

void fields(auto& form, Assignment& place) {
  form.value("round", place.round, {.least = 1});
  form.value("restart_count", place.restart_count);
  form.value("max_restarts", place.max_restarts);
  form.value("group_rank", place.group_rank);
  form.value("group_world_size", place.group_world_size, {.least = 1});
  form.value("first_rank", place.first_rank);
  form.value("world_size", place.world_size, {.least = 1});
  form.value("first_role_rank", place.first_role_rank);
  form.value("role_world_size", place.role_world_size, {.least = 1});
  form.value("own_store", place.own_store);
}

void fields(auto& form, StopRound& stop) {
  form.value("round", stop.round);
  form.value("signal", stop.signal, {.least = 1});
  form.value("at_once", stop.at_once);
  form.value("stacks_first", stop.stacks_first);
}

void fields(auto& form, HangFound& hang) {
  form.value("round", hang.round);
  form.value("text", hang.text, kLongText);
  form.value("ends_job", hang.ends_job);
  form.value("limit", hang.limit, {.most = kLongestStill});
  form.value("rank", hang.rank, {.least = -1});
  form.value("stuck", hang.stuck);
}

void fields(auto& form, CollectStacks& stacks) { form.value("for", stacks.requester, {.most = INT64_MAX}); }

void fields(auto& form, Finish& finish) {
  form.value("exit_code", finish.exit_code, {.most = 255});
  form.value("error", finish.error);
}

void fields(auto&, Pong&) {}

void fields(auto& form, VerifyPeerUid& request) {
  form.value("id", request.id);
  form.value("client", request.client);
  form.value("server", request.server);
}

/// Notice, Report, Reject and CoordinatorLost.
template <class Message>
requires requires(Message message) { Message{std::move(message.text)}; }
void fields(auto& form, Message& message) { form.value("text", message.text, kLongText); }

/// Takes from the failures of many ranks what makes them too long for a message.
void fit_into_message(Json& message) {
  Json& failures = message["failures"];
  std::size_t size = message.dump().size();
  for (auto failure = failures.rbegin(); failure != failures.rend() && size > kLongestMessage / 2;
       ++failure) {
    size -= failure->dump().size();
    for (const char* detail : {"last_lines", "message"}) (*failure)[detail] = "";
    (*failure)["error"] = nullptr;
    size += failure->dump().size();
  }
  for (; failures.size() > 1 && size > kLongestMessage / 2; failures.erase(failures.size() - 1))
    size -= failures.back().dump().size();
}

template <class Variant>
std::string encode_any(const Variant& message) {
  Writer writer;
  std::visit(
      [&]<class Message>(Message each) {
        writer.message["type"] = Message::kType;
        fields(writer, each);
        if constexpr (std::is_same_v<Message, RoundEnded>) fit_into_message(writer.message);
      },
      message);
  return writer.message.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <class... Messages>
void read_any(const Json& json, std::optional<std::variant<Messages...>>& message) {
  const Reader reader(json);
  const auto type = json.value("type", Json());
  const auto read_if = [&]<class Message>(Message each) {
    if (type != Message::kType) return;
    fields(reader, each);
    message = std::move(each);
  };
  (read_if(Messages{}), ...);
}

}  // namespace

std::string describe(const NodeInfo& node, std::optional<int> group_rank) {
  return fmt::format("{} (host {}, process {})", group_rank ? fmt::format("node {}", *group_rank) : "a node",
                     node.host, node.pid);
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
