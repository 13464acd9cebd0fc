#include "rendezvous/message_codec.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "lockstep/core/error.hpp"
#include "rendezvous/wall_clock.hpp"

namespace lockstep::launch {
namespace {

using Json = nlohmann::json;

/// More ranks or nodes than this are a mistake or a lie.
constexpr std::int64_t kLargest = 1 << 24;
constexpr std::size_t kLongestText = 4096;
constexpr std::size_t kMostRanks = 1 << 16;
/// A month; a rank that has not moved for longer is a lie.
constexpr std::int64_t kLongestStill = 31LL * 24 * 3600 * 1000;
/// Deeper nesting is not of this protocol, and would cost stack.
constexpr int kDeepest = 16;

[[noreturn]] void fail(const std::string& key, const char* expected) {
  throw DataError(
      fmt::format("a message between launchers has no valid '{}': expected {}. Use the same version of "
                  "lockstep on every node.",
                  key, expected));
}

/// Reads the values of one message, which name themselves in errors.
class Reader {
 public:
  explicit Reader(const Json& message) : message_(message) {}

  bool has(const char* key) const { return message_.contains(key); }

  const Json& at(const char* key) const {
    const auto found = message_.find(key);
    if (found == message_.end()) fail(key, "one");
    return *found;
  }

  std::int64_t integer(const char* key, std::int64_t least, std::int64_t most) const {
    const Json& value = at(key);
    if (!value.is_number_integer()) fail(key, "a whole number");
    const auto number = value.get<std::int64_t>();
    if (number < least || number > most) fail(key, "a number within bounds");
    return number;
  }
  int number(const char* key, int least = 0) const { return static_cast<int>(integer(key, least, kLargest)); }
  std::uint64_t unsigned_number(const char* key) const {
    if (!at(key).is_number_unsigned()) fail(key, "a whole number from 0");
    return at(key).get<std::uint64_t>();
  }
  /// False where it is left out.
  bool flag(const char* key) const {
    if (!has(key)) return false;
    if (!at(key).is_boolean()) fail(key, "true or false");
    return at(key).get<bool>();
  }
  std::string text(const char* key, std::size_t longest = kLongestText) const {
    if (!at(key).is_string()) fail(key, "a text");
    auto text = at(key).get<std::string>();
    if (text.size() > longest) fail(key, "a shorter text");
    return text;
  }
  const Json& list(const char* key) const {
    if (!at(key).is_array() || at(key).size() > kMostRanks) fail(key, "a list");
    return at(key);
  }
  /// "10.0.0.1:29400", as Address::text writes it; no address for what is none.
  net::Address address(const char* key) const {
    const std::string where = text(key);
    const auto colon = where.rfind(':');
    if (colon == std::string::npos) return {};
    const int port = std::atoi(where.c_str() + colon + 1);
    return net::Address::numeric(where.substr(0, colon), static_cast<std::uint16_t>(port))
        .value_or(net::Address());
  }

 private:
  const Json& message_;
};

void put_store(Json& message, const std::optional<net::HostPort>& store) {
  if (!store) return;
  message["store_host"] = store->host;
  message["store_port"] = store->port;
}

std::optional<net::HostPort> read_store(const Reader& read) {
  if (!read.has("store_host")) return std::nullopt;
  return net::HostPort{read.text("store_host"),
                       static_cast<std::uint16_t>(read.integer("store_port", 1, 65535))};
}

/// [rank, place, still, status, process state, activity, what, number, step]; without the last four: it never
/// beat.
Json to_json(const RankStatus& status) {
  Json values = {status.rank, status.place, status.still.count(), nullptr,
                 std::string(1, status.process_state)};
  if (status.status) values[3] = *status.status;
  if (!status.beat) return values;
  values.push_back(static_cast<int>(status.beat->activity));
  values.push_back(status.beat->what);
  values.push_back(status.beat->number);
  values.push_back(status.beat->step);
  return values;
}

std::int64_t value_at(const Json& values, std::size_t index, std::int64_t least, std::int64_t most) {
  if (!values[index].is_number_integer()) fail("ranks", "lists of a rank's values");
  const auto number = values[index].get<std::int64_t>();
  if (number < least || number > most) fail("ranks", "values within bounds");
  return number;
}

std::string text_at(const Json& values, std::size_t index) {
  constexpr std::size_t kLongestPlace = 512;
  if (!values[index].is_string()) fail("ranks", "lists of a rank's values");
  return values[index].get<std::string>().substr(0, kLongestPlace);
}

RankStatus read_rank_status(const Json& values) {
  if (!values.is_array() || (values.size() != 5 && values.size() != 9))
    fail("ranks", "lists of a rank's values");
  RankStatus status;
  status.rank = static_cast<int>(value_at(values, 0, 0, kLargest));
  status.place = text_at(values, 1);
  status.still = std::chrono::milliseconds(value_at(values, 2, 0, kLongestStill));
  if (!values[3].is_null()) status.status = static_cast<int>(value_at(values, 3, 0, 0xffff));
  const std::string state = text_at(values, 4);
  if (state.size() != 1) fail("ranks", "the state of a process");
  status.process_state = state.front();
  if (values.size() == 5) return status;
  HeartbeatRecord beat;
  beat.activity = static_cast<Activity>(value_at(values, 5, 1, 3));
  beat.what = text_at(values, 6);
  beat.number = static_cast<std::uint64_t>(value_at(values, 7, INT64_MIN, INT64_MAX));
  beat.step = static_cast<std::uint64_t>(value_at(values, 8, INT64_MIN, INT64_MAX));
  status.beat = beat;
  return status;
}

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

Json to_json(const NodeInfo& node) {
  Json message = {{"type", "join"},
                  {"version", node.version},
                  {"run_id", node.run_id},
                  {"host", node.host},
                  {"pid", node.pid},
                  {"min_nodes", node.min_nodes},
                  {"max_nodes", node.max_nodes},
                  {"local_world_size", node.local_world_size},
                  {"role", node.role},
                  {"program", node.program.substr(0, kLongestText)},
                  {"arguments", node.arguments.substr(0, kLongestText)}};
  if (node.node_rank) message["node_rank"] = *node.node_rank;
  put_store(message, node.own_store);
  stamp_with_wall_clock(message);
  return message;
}

NodeInfo read_node_info(const Reader& read, const Json& message) {
  NodeInfo node;
  node.version = read.number("version");
  node.run_id = read.text("run_id");
  node.host = read.text("host");
  // What follows may look otherwise in another version, which the coordinator refuses by its number.
  if (node.version != kProtocolVersion) return node;
  node.pid = read.number("pid");
  if (read.has("node_rank")) node.node_rank = read.number("node_rank");
  node.min_nodes = read.number("min_nodes", 1);
  node.max_nodes = read.number("max_nodes", node.min_nodes);
  node.local_world_size = read.number("local_world_size", 1);
  node.role = read.text("role");
  node.program = read.text("program");
  node.arguments = read.text("arguments");
  node.own_store = read_store(read);
  node.clock_ahead = clock_ahead(message);
  return node;
}

Json to_json(const RankFailed& failed) {
  return {{"type", "failed"}, {"round", failed.round}, {"failure", to_json(failed.failure)}};
}

Json to_json(const RoundEnded& ended) {
  Json message = {{"type", "ended"}, {"round", ended.round}, {"ok", ended.ok}};
  if (ended.preempted) message["preempted"] = true;
  if (ended.step) message["step"] = *ended.step;
  for (const auto& failure : ended.failures) message["failures"].push_back(to_json(failure));
  if (!ended.failures.empty()) fit_into_message(message);
  return message;
}

RoundEnded read_round_ended(const Reader& read) {
  RoundEnded ended;
  ended.round = read.number("round");
  ended.ok = read.flag("ok");
  ended.preempted = read.flag("preempted");
  if (read.has("step")) ended.step = read.unsigned_number("step");
  if (!read.has("failures")) return ended;
  for (const auto& failure : read.list("failures")) ended.failures.push_back(read_process_failure(failure));
  return ended;
}

Json to_json(const StatusReport& report) {
  Json ranks = Json::array();
  for (const auto& status : report.ranks) ranks.push_back(to_json(status));
  return {{"type", "status"}, {"round", report.round}, {"ranks", ranks}};
}

StatusReport read_status_report(const Reader& read) {
  StatusReport report{.round = read.number("round")};
  for (const auto& values : read.list("ranks")) report.ranks.push_back(read_rank_status(values));
  return report;
}

Json to_json(const Draining& draining) { return {{"type", "draining"}, {"signal", draining.signal}}; }
Json to_json(const StacksRequest&) { return {{"type", "stacks_request"}}; }
Json to_json(const Stacks& stacks) {
  return {{"type", "stacks"}, {"for", stacks.requester}, {"text", stacks.text}};
}
Json to_json(const Ping&) { return {{"type", "ping"}}; }
Json to_json(const PeerUidAnswer& answer) {
  return {{"type", "peer_uid"}, {"id", answer.id}, {"ok", answer.ok}};
}

Json to_json(const Assignment& place) {
  Json message = {{"type", "start"},
                  {"round", place.round},
                  {"restart_count", place.restart_count},
                  {"max_restarts", place.max_restarts},
                  {"group_rank", place.group_rank},
                  {"group_world_size", place.group_world_size},
                  {"first_rank", place.first_rank},
                  {"world_size", place.world_size},
                  {"first_role_rank", place.first_role_rank},
                  {"role_world_size", place.role_world_size}};
  put_store(message, place.own_store);
  return message;
}

Assignment read_assignment(const Reader& read) {
  Assignment place;
  place.round = read.number("round", 1);
  place.restart_count = read.number("restart_count");
  place.max_restarts = read.number("max_restarts");
  place.group_rank = read.number("group_rank");
  place.group_world_size = read.number("group_world_size", 1);
  place.first_rank = read.number("first_rank");
  place.world_size = read.number("world_size", 1);
  place.first_role_rank = read.number("first_role_rank");
  place.role_world_size = read.number("role_world_size", 1);
  place.own_store = read_store(read);
  return place;
}

Json to_json(const StopRound& stop) {
  return {{"type", "stop"},
          {"round", stop.round},
          {"signal", stop.signal},
          {"at_once", stop.at_once},
          {"stacks_first", stop.stacks_first}};
}

StopRound read_stop_round(const Reader& read) {
  return {read.number("round"), read.number("signal", 1), read.flag("at_once"), read.flag("stacks_first")};
}

Json to_json(const HangFound& hang) {
  return {{"type", "hang"},
          {"round", hang.round},
          {"text", hang.text},
          {"ends_job", hang.ends_job},
          {"limit", hang.limit.count()},
          {"rank", hang.rank},
          {"stuck", hang.stuck}};
}

HangFound read_hang_found(const Reader& read) {
  HangFound hang;
  hang.round = read.number("round");
  hang.text = read.text("text", kLongestMessage);
  hang.ends_job = read.flag("ends_job");
  hang.limit = std::chrono::milliseconds(read.integer("limit", 0, kLongestStill));
  hang.rank = read.number("rank", -1);
  for (const auto& rank : read.list("stuck")) {
    if (!rank.is_number_integer()) fail("stuck", "a list of ranks");
    hang.stuck.push_back(rank.get<int>());
  }
  return hang;
}

Json to_json(const CollectStacks& stacks) { return {{"type", "collect_stacks"}, {"for", stacks.requester}}; }
Json to_json(const Notice& notice) { return {{"type", "notice"}, {"text", notice.text}}; }
Json to_json(const Report& report) { return {{"type", "report"}, {"text", report.text}}; }
Json to_json(const Finish& finish) {
  return {{"type", "finish"}, {"exit_code", finish.exit_code}, {"error", finish.error}};
}
Json to_json(const Pong&) { return {{"type", "pong"}}; }
Json to_json(const VerifyPeerUid& request) {
  return {{"type", "verify_peer_uid"},
          {"id", request.id},
          {"client", request.client.text()},
          {"server", request.server.text()}};
}
Json to_json(const Reject& reject) { return {{"type", "reject"}, {"text", reject.text}}; }
Json to_json(const CoordinatorLost& lost) { return {{"type", "lost"}, {"text", lost.text}}; }

template <class Message>
std::string encode_any(const Message& message) {
  const Json json = std::visit([](const auto& each) { return to_json(each); }, message);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json parse(const std::string& text) {
  const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= kDeepest; };
  Json message = Json::parse(text, shallow, false);
  if (!message.is_object()) throw DataError("a message between launchers is no JSON object.");
  return message;
}

std::string type_of(const Json& message) {
  const auto found = message.find("type");
  return found != message.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::string encode(const NodeMessage& message) { return encode_any(message); }
std::string encode(const CoordinatorMessage& message) { return encode_any(message); }

std::optional<NodeMessage> decode_node_message(const std::string& text) {
  const Json message = parse(text);
  const Reader read(message);
  const std::string type = type_of(message);
  if (type == "join") return read_node_info(read, message);
  if (type == "failed") return RankFailed{read.number("round"), read_process_failure(read.at("failure"))};
  if (type == "ended") return read_round_ended(read);
  if (type == "status") return read_status_report(read);
  if (type == "draining") return Draining{read.number("signal", 1)};
  if (type == "stacks_request") return StacksRequest{};
  if (type == "stacks") return Stacks{read.integer("for", 0, INT64_MAX), read.text("text", kLongestMessage)};
  if (type == "ping") return Ping{};
  if (type == "peer_uid") return PeerUidAnswer{read.unsigned_number("id"), read.flag("ok")};
  return std::nullopt;
}

std::optional<CoordinatorMessage> decode_coordinator_message(const std::string& text) {
  const Json message = parse(text);
  const Reader read(message);
  const std::string type = type_of(message);
  if (type == "start") return read_assignment(read);
  if (type == "stop") return read_stop_round(read);
  if (type == "hang") return read_hang_found(read);
  if (type == "collect_stacks") return CollectStacks{read.integer("for", 0, INT64_MAX)};
  if (type == "notice") return Notice{read.text("text", kLongestMessage)};
  if (type == "report") return Report{read.text("text", kLongestMessage)};
  if (type == "finish")
    return Finish{static_cast<int>(read.integer("exit_code", 0, 255)), message.value("error", Json())};
  if (type == "pong") return Pong{};
  if (type == "verify_peer_uid")
    return VerifyPeerUid{read.unsigned_number("id"), read.address("client"), read.address("server")};
  if (type == "reject") return Reject{read.text("text", kLongestMessage)};
  return std::nullopt;
}

}  // namespace lockstep::launch
