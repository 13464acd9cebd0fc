#include "rendezvous/messages.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

/// More ranks or nodes than this are a mistake or a lie.
constexpr int kLargest = 1 << 24;
constexpr std::size_t kLongestText = 4096;

[[noreturn]] void refuse(const std::string& key, const char* expected) {
  throw DataError("a message between launchers has no valid '" + key + "': expected " + expected +
                  ". Use the same version of lockstep on every node.");
}

int read_number(const Json& message, const char* key, int least) {
  const auto found = message.find(key);
  if (found == message.end() || !found->is_number_integer()) refuse(key, "a whole number");
  const auto value = found->get<std::int64_t>();
  if (value < least || value > kLargest) refuse(key, "a number within bounds");
  return static_cast<int>(value);
}

std::string read_text(const Json& message, const char* key) {
  const auto found = message.find(key);
  if (found == message.end() || !found->is_string()) refuse(key, "a text");
  auto text = found->get<std::string>();
  if (text.size() > kLongestText) refuse(key, "a shorter text");
  return text;
}

}  // namespace

Json to_message(const NodeInfo& node) {
  Json message = {{"type", "join"},
                  {"version", node.version},
                  {"run_id", node.run_id},
                  {"host", node.host},
                  {"pid", node.pid},
                  {"min_nodes", node.min_nodes},
                  {"max_nodes", node.max_nodes},
                  {"local_world_size", node.local_world_size},
                  {"role", node.role}};
  if (node.node_rank) message["node_rank"] = *node.node_rank;
  return message;
}

NodeInfo read_node_info(const Json& message) {
  NodeInfo node;
  node.version = read_number(message, "version", 0);
  node.run_id = read_text(message, "run_id");
  node.host = read_text(message, "host");
  node.pid = read_number(message, "pid", 0);
  if (message.contains("node_rank")) node.node_rank = read_number(message, "node_rank", 0);
  node.min_nodes = read_number(message, "min_nodes", 1);
  node.max_nodes = read_number(message, "max_nodes", node.min_nodes);
  node.local_world_size = read_number(message, "local_world_size", 1);
  node.role = read_text(message, "role");
  return node;
}

Json to_message(const Assignment& assignment) {
  return {{"type", "start"},
          {"round", assignment.round},
          {"restart_count", assignment.restart_count},
          {"max_restarts", assignment.max_restarts},
          {"group_rank", assignment.group_rank},
          {"group_world_size", assignment.group_world_size},
          {"first_rank", assignment.first_rank},
          {"world_size", assignment.world_size},
          {"first_role_rank", assignment.first_role_rank},
          {"role_world_size", assignment.role_world_size}};
}

Assignment read_assignment(const Json& message) {
  Assignment assignment;
  assignment.round = read_number(message, "round", 1);
  assignment.restart_count = read_number(message, "restart_count", 0);
  assignment.max_restarts = read_number(message, "max_restarts", 0);
  assignment.group_rank = read_number(message, "group_rank", 0);
  assignment.group_world_size = read_number(message, "group_world_size", 1);
  assignment.first_rank = read_number(message, "first_rank", 0);
  assignment.world_size = read_number(message, "world_size", 1);
  assignment.first_role_rank = read_number(message, "first_role_rank", 0);
  assignment.role_world_size = read_number(message, "role_world_size", 1);
  return assignment;
}

std::string type_of(const Json& message) {
  const auto found = message.is_object() ? message.find("type") : message.end();
  return message.is_object() && found != message.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string describe(const NodeInfo& node, std::optional<int> group_rank) {
  return (group_rank ? "node " + std::to_string(*group_rank) : std::string("a node")) + " (host " +
         node.host + ", process " + std::to_string(node.pid) + ")";
}

}  // namespace lockstep::launch
