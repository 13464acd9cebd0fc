// How the coordinator answers a node that is asked to end (SIGTERM): the job goes on without it, another node
// relieves it, or the job ends.

#include <chrono>
#include <optional>
#include <utility>

#include "rendezvous/coordinator.hpp"

namespace lockstep::launch {
namespace {

/// A job that is asked to end is asked on all its nodes, one soon after the other.
constexpr std::chrono::milliseconds kReliefDelay{1500};

}  // namespace

void Coordinator::on_draining(Node& node, int signal, Time now) {
  if (node.drain_signal != 0 || phase_ == Phase::finishing) return;
  node.drain_signal = signal;
  if (node.id != 0 && node.active && node.ended && phase_ == Phase::running) return release(node);
  if (const auto other = std::exchange(relieved_, std::nullopt)) {
    // More nodes are asked to end: it is the job, whose ranks save their state. Nobody is relieved.
    const NodeId second = node.id;
    if (Node* const first = find(other->node)) end_node(*first, now);
    if (Node* const rest = find(second)) end_node(*rest, now);
    return;
  }
  if (can_be_relieved(node)) {
    relieved_ = {node.id, now + kReliefDelay};
    return;
  }
  end_node(node, now);
}

/// A node that was asked to end, and that no other one relieves.
void Coordinator::end_node(Node& node, Time now) {
  const int signal = node.drain_signal;
  const bool waits = phase_ == Phase::gathering || !node.active;
  const bool goes_on = node.id != 0 && (waits || (elastic() && staying() >= options_.min_nodes));
  if (!goes_on) {
    if (nodes_.size() > 1) notify(node.text() + " got a request to stop, which ends the job");
    if (phase_ == Phase::gathering) return end_by(signal, now);
    if (end_signal_ == 0) end_signal_ = signal;
    stop(Reason::end, signal);
  } else if (waits) {
    release(node);
  } else {
    notify(node.text() + " got a request to stop: the job continues without it");
    stop(Reason::membership, SIGTERM);
  }
  check_all_ended(now);
}

/// Whether another node could take the place of this one, which is asked to end, while the round goes on.
bool Coordinator::can_be_relieved(const Node& node) const {
  return phase_ == Phase::running && recovery_ && recovery_->is_on() && node.running() && node.id != 0 &&
         find_successor(node);
}

/// No other node was asked to end since.
void Coordinator::relieve(Time now) {
  Node* const node = find(std::exchange(relieved_, std::nullopt)->node);
  if (node == nullptr) return;
  if (can_be_relieved(*node)) {
    forget_earlier_losses();
    if (recovery_->on_node_leaves(*node->group_rank, "is asked to end", now)) return;
  }
  end_node(*node, now);
}

}  // namespace lockstep::launch
