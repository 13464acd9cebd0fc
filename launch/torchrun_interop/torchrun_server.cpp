#include "torchrun_interop/torchrun_server.hpp"

#include <fmt/core.h>

#include "core/json_text.hpp"
#include "core/text.hpp"

namespace lockstep::launch {
namespace {

/// Ids that no connection gets.
constexpr NodeId kFirstId = NodeId{1} << 40;

/// Ends torchrun's agent: it is not Base64, so the agent considers the state corrupt.
constexpr const char* kNoState = "lockstep-coordinates-this-job";
constexpr const char* kStatePrefix = "torch.rendezvous.";

/// The number at the end of the key; -1: none.
int index_of(std::string_view key, const std::string& prefix) {
  if (!key.starts_with(prefix)) return -1;
  return parse_whole_number(key.substr(prefix.size())).value_or(-1);
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

void TorchrunServer::on_keys(const std::vector<std::string>& keys, Time now) {
  for (const auto& key : keys) {
    const int index = index_of(key, prefix_ + "role_info/");
    if (index > 0 && index < max_nodes_ && !nodes_.contains(index)) join(index, now);
    if (key == barrier("num_members")) count_ended(now);
  }
}

/// The role info of an agent; not an object if it is missing or invalid, as any client may have written it.
nlohmann::json TorchrunServer::read_role(int index) const {
  constexpr std::size_t kLongest = 4096;
  const auto text = server_.get(fmt::format("{}role_info/{}", prefix_, index));
  if (!text || text->size() > kLongest) return {};
  const auto flat = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) { return depth <= 1; };
  return nlohmann::json::parse(*text, flat, false);
}

void TorchrunServer::join(int index, Time now) {
  const auto role = read_role(index);
  if (!role.is_object()) return;
  const auto size = role.value("local_world_size", nlohmann::json());
  const auto name = role.value("role", nlohmann::json());
  if (!size.is_number_integer() || size < 1 || size > 1 << 16 || !name.is_string()) return;
  NodeInfo info;
  info.run_id = run_id_;
  info.host = "torchrun's";
  info.node_rank = index;
  info.min_nodes = info.max_nodes = max_nodes_;
  info.local_world_size = size;
  info.role = name;
  info.is_torchrun = true;
  nodes_[index] = kFirstId + index;
  coordinator_.on_join(kFirstId + index, info, now);
}

void TorchrunServer::send(NodeId node, const CoordinatorMessage& message) {
  if (const auto* assignment = std::get_if<Assignment>(&message)) {
    round_ = assignment->round;
    const nlohmann::json ranks = {assignment->first_rank, assignment->world_size, assignment->first_role_rank,
                                  assignment->role_world_size};
    server_.set(fmt::format("{}assigned_ranks/{}", prefix_, node - kFirstId), json_text(ranks));
  } else if (const auto* finish = std::get_if<Finish>(&message);
             finish != nullptr && finish->exit_code == 0) {
    pass_barrier();
  }
}

std::string TorchrunServer::barrier(const std::string& key) const {
  return prefix_ + "agent/terminal_state/" + key;
}

void TorchrunServer::count_ended(Time now) {
  if (passed_) return;
  const auto members = server_.add(barrier("num_members"), 0);
  // Agents do not say which of them has ended; it makes no difference.
  std::int64_t counted = 0;
  for (const auto& [index, id] : nodes_) {
    if (++counted > members) return;
    coordinator_.on_message(id, RoundEnded{.round = round_, .ok = true}, now);
  }
}

void TorchrunServer::pass_barrier() {
  if (std::exchange(passed_, true)) return;
  // Lockstep's launchers are counted as well: torchrun's agents wait for all nodes.
  const auto others = max_nodes_ - static_cast<int>(nodes_.size());
  if (server_.add(barrier("num_members"), others) >= max_nodes_) server_.set(barrier("last_member"), "1");
}

TorchrunRejecter::TorchrunRejecter(net::Server& server, Coordinator& coordinator)
    : server_(server), coordinator_(coordinator) {
  server_.watch(kStatePrefix);
}

void TorchrunRejecter::on_keys(const std::vector<std::string>& keys, Coordinator::Time) {
  for (const auto& key : keys) {
    if (!key.starts_with(kStatePrefix) || server_.get(key) == kNoState) continue;
    server_.set(key, kNoState);
    coordinator_.on_refused("torchrun's agent",
                            "its c10d rendezvous is not compatible with Lockstep's: start 'lockstep run' on "
                            "every node, or use --rdzv-backend static on all");
  }
}

}  // namespace lockstep::launch
