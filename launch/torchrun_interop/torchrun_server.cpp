#include "torchrun_interop/torchrun_server.hpp"

#include <algorithm>
#include <charconv>

namespace lockstep::launch {
namespace {

/// Numbers that no connection gets.
constexpr NodeId kFirstId = NodeId{1} << 40;

/// The number at the end of the key; -1: none.
int index_of(const std::string& key, const std::string& prefix) {
  int index = -1;
  if (!key.starts_with(prefix)) return -1;
  const char* end = key.data() + key.size();
  const auto [stop, failure] = std::from_chars(key.data() + prefix.size(), end, index);
  return failure == std::errc() && stop == end ? index : -1;
}

}  // namespace

TorchrunServer::TorchrunServer(const std::string& run_id, int max_nodes, net::Server& server,
                               Coordinator& coordinator)
    : run_id_(run_id),
      prefix_(run_id + "/torchelastic/"),
      max_nodes_(max_nodes),
      server_(server),
      coordinator_(coordinator) {
  server_.watch(prefix_);
}

void TorchrunServer::hear(const std::vector<std::string>& keys, Time now) {
  for (const auto& key : keys) {
    const int index = index_of(key, prefix_ + "role_info/");
    if (index > 0 && index < max_nodes_ && !nodes_.contains(index)) join(index, now);
    if (key == barrier("num_members")) count_ended(now);
  }
}

/// The role that an agent has written, or a discarded value: anybody may have written anything.
Json TorchrunServer::read_role(int index) const {
  constexpr std::size_t kLongest = 4096;
  const auto text = server_.get(prefix_ + "role_info/" + std::to_string(index));
  if (!text || text->size() > kLongest) return {};
  const auto flat = [](int depth, Json::parse_event_t, Json&) { return depth <= 1; };
  return Json::parse(*text, flat, false);
}

void TorchrunServer::join(int index, Time now) {
  const Json role = read_role(index);
  if (!role.is_object()) return;
  const Json size = role.value("local_world_size", Json());
  const Json name = role.value("role", Json());
  if (!size.is_number_integer() || size < 1 || size > 1 << 16 || !name.is_string()) return;
  NodeInfo info;
  info.run_id = run_id_;
  info.host = "torchrun's";
  info.node_rank = index;
  info.min_nodes = info.max_nodes = max_nodes_;
  info.local_world_size = size;
  info.role = name;
  info.mute = true;
  nodes_[index] = kFirstId + index;
  coordinator_.on_join(kFirstId + index, info, now);
}

void TorchrunServer::tell(NodeId node, const Json& message) {
  if (type_of(message) == "start") {
    const Assignment place = read_assignment(message);
    round_ = place.round;
    const Json ranks = {place.first_rank, place.world_size, place.first_role_rank, place.role_world_size};
    server_.set(prefix_ + "assigned_ranks/" + std::to_string(node - kFirstId), ranks.dump());
  } else if (type_of(message) == "finish" && message.value("exit_code", 1) == 0) {
    pass_barrier();
  }
}

std::string TorchrunServer::barrier(const std::string& key) const {
  return prefix_ + "agent/terminal_state/" + key;
}

void TorchrunServer::count_ended(Time now) {
  if (passed_) return;
  const auto members = server_.add(barrier("num_members"), 0);
  // They count themselves without saying who they are; which is which makes no difference.
  std::int64_t counted = 0;
  for (const auto& [index, id] : nodes_) {
    if (++counted > members) return;
    coordinator_.on_message(id, {{"type", "ended"}, {"round", round_}, {"ok", true}}, now);
  }
}

void TorchrunServer::pass_barrier() {
  if (std::exchange(passed_, true)) return;
  // Every launcher of ours counts, too: theirs wait for as many as there are nodes.
  const auto others = max_nodes_ - static_cast<int>(nodes_.size());
  if (server_.add(barrier("num_members"), others) >= max_nodes_) server_.set(barrier("last_member"), "1");
}

}  // namespace lockstep::launch
