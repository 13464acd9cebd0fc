#include "rendezvous/coordinator.hpp"

#include <algorithm>
#include <csignal>

#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "process/time_text.hpp"

namespace lockstep::launch {
namespace {

std::string nodes_text(int count) { return std::to_string(count) + (count == 1 ? " node" : " nodes"); }

std::string range_text(int least, int most) {
  return least == most ? std::to_string(least) : std::to_string(least) + ":" + std::to_string(most);
}

int read_int(const Json& message, const char* key) {
  const auto found = message.find(key);
  if (found == message.end() || !found->is_number_integer())
    throw DataError(std::string("a message between launchers has no number '") + key + "'.");
  return found->get<int>();
}

/// The coordinator's own node and Python agents give no signs of life.
bool sends_keep_alives(const Node& node) { return node.id != 0 && !node.info.mute; }

std::uint64_t read_step(const Json& message) {
  const auto found = message.find("step");
  if (found == message.end() || !found->is_number_unsigned())
    throw DataError("a message between launchers has no valid 'step'.");
  return found->get<std::uint64_t>();
}

bool read_flag(const Json& message, const char* key) {
  const auto found = message.find(key);
  if (found == message.end()) return false;
  if (!found->is_boolean())
    throw DataError(std::string("a message between launchers has no true or false '") + key + "'.");
  return found->get<bool>();
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, CoordinatorActions& outbox, Time now)
    : options_(std::move(options)),
      outbox_(outbox),
      restarts_(options_.max_restarts, options_.restart_backoff),
      round_started_(now),
      judge_(HangOptions()),
      next_look_(now),
      gathering_since_(now),
      next_notice_(now + options_.notice_interval) {}

Node* Coordinator::find(NodeId id) {
  const auto found =
      std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& node) { return node.id == id; });
  return found == nodes_.end() ? nullptr : &*found;
}

int Coordinator::staying() const {
  return static_cast<int>(
      std::count_if(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.drain_signal == 0; }));
}

std::string Coordinator::rejection(const NodeInfo& info) const {
  if (info.version != kProtocolVersion)
    return "it speaks version " + std::to_string(info.version) + " of the launchers' protocol, here it is " +
           std::to_string(kProtocolVersion) + ". Use the same version of lockstep on every node";
  if (info.run_id != options_.run_id)
    return "its --rdzv-id is '" + info.run_id + "', that of the job here is '" + options_.run_id +
           "'. Two jobs need two endpoints; nodes of one job need one run id";
  if (info.min_nodes != options_.min_nodes || info.max_nodes != options_.max_nodes)
    return "its --nnodes is " + range_text(info.min_nodes, info.max_nodes) + ", that of the job here is " +
           range_text(options_.min_nodes, options_.max_nodes) + ". Give the same on every node";
  if (phase_ == Phase::finishing || reason_ == Reason::end) return "the job is over";
  if (!info.node_rank) return "";
  if (*info.node_rank >= options_.max_nodes)
    return "its --node-rank is " + std::to_string(*info.node_rank) + ", but the job has " +
           nodes_text(options_.max_nodes) + ", numbered from 0";
  for (const auto& node : nodes_) {
    if (node.info.node_rank == info.node_rank)
      return "--node-rank " + std::to_string(*info.node_rank) + " is taken by host " + node.info.host +
             ", process " + std::to_string(node.info.pid) + ". Give every node its own";
  }
  return "";
}

void Coordinator::on_join(NodeId id, const NodeInfo& info, Time now) {
  if (const std::string why = rejection(info); !why.empty()) {
    outbox_.send(id, {{"type", "reject"}, {"text", why}});
    outbox_.dismiss(id);
    return;
  }
  const bool ending = std::any_of(nodes_.begin(), nodes_.end(),
                                  [](const Node& other) { return other.active && other.ended; });
  const bool full = staying() >= options_.max_nodes || (phase_ == Phase::running && ending);
  Node node;
  node.id = id;
  node.info = info;
  node.last_heard = now;
  nodes_.push_back(node);
  tell_of_clock(node);
  if (full) {
    outbox_.send(id, {{"type", "text"},
                      {"text",
                       "the job has its nodes, or comes to its end; this one is a spare and starts when "
                       "another one goes"}});
  } else if (phase_ == Phase::running) {
    say(node.text() + " came: the ranks are started anew with it");
    stop(Reason::membership, SIGTERM);
    check_all_ended(now);
  } else if (phase_ == Phase::gathering) {
    try_start(now);
  }
}

void Coordinator::tell_of_clock(const Node& node) {
  constexpr std::chrono::seconds kMuch{5};
  if (!node.info.clock_ahead || std::chrono::abs(*node.info.clock_ahead) <= kMuch) return;
  const bool ahead = node.info.clock_ahead->count() > 0;
  const auto by = std::chrono::round<std::chrono::seconds>(std::chrono::abs(*node.info.clock_ahead));
  say("the wall clock of " + node.text() + " is " + seconds_text(by) + (ahead ? " ahead of" : " behind") +
      " the coordinator's: so are the times in its logs; nothing else depends on it");
}

void Coordinator::on_message(NodeId id, const Json& message, Time now) {
  Node* node = find(id);
  if (node == nullptr) return;
  node->last_heard = now;
  const std::string type = type_of(message);
  if (type == "ping") {
    outbox_.send(id, {{"type", "pong"}});
  } else if (type == "draining") {
    on_draining(*node, read_int(message, "signal"), now);
  } else if (type == "stacks") {
    ask_for_stacks(*node);
  } else if (type == "stacks_of") {
    pass_on_stacks(*node, message);
  } else if (phase_ != Phase::finishing && node->active) {
    on_rank_message(*node, type, message, now);
  }
}

void Coordinator::on_rank_message(Node& node, const std::string& type, const Json& message, Time now) {
  if (type != "failed" && type != "ended" && type != "still") return;
  if (read_int(message, "round") != round_) return;
  if (type == "failed") on_failed(node, message, now);
  if (type == "ended") on_ended(node, message, now);
  if (type == "still") on_status(node, message, now);
}

void Coordinator::keep_record(const Json& record) {
  const int rank = read_int(record, "rank");
  for (auto& known : records_) {
    if (known["rank"] == rank) {
      known = record;
      return;
    }
  }
  records_.push_back(record);
}

void Coordinator::on_failed(const Node& node, const Json& message, Time) {
  // What ranks do while they are stopped for another reason is no failure.
  if (phase_ == Phase::stopping && reason_ != Reason::failure && reason_ != Reason::node_lost) return;
  if (message.contains("record")) keep_record(message["record"]);
  if (phase_ != Phase::running) return;
  if (nodes_.size() > 1) say("a rank failed on " + node.text() + ": all ranks are stopped");
  stop(Reason::failure, SIGTERM);
}

void Coordinator::on_ended(Node& node, const Json& message, Time now) {
  const bool ok = read_flag(message, "ok");
  const bool preempted = read_flag(message, "preempted");
  if (message.contains("step"))
    best_step_ = std::max<std::uint64_t>(best_step_.value_or(0), read_step(message));
  const auto records = message.find("records");
  if (records != message.end() && records->is_array()) {
    for (const auto& record : *records) keep_record(record);
  }
  node.ended = true;
  if (node.drain_signal != 0 && reason_ != Reason::end) release(node);
  // Ranks that saved their state and ended leave the others the time to do the same.
  preempted_ = preempted_ || preempted;
  in_order_ = in_order_ && (ok || preempted);
  if (!ok && !preempted && phase_ == Phase::running) stop(Reason::failure, SIGTERM);
  check_all_ended(now);
}

void Coordinator::on_draining(Node& node, int signal, Time now) {
  if (node.drain_signal != 0 || phase_ == Phase::finishing) return;
  node.drain_signal = signal;
  if (node.id != 0 && node.active && node.ended && phase_ == Phase::running) return release(node);
  const bool waits = phase_ == Phase::gathering || !node.active;
  const bool goes_on = node.id != 0 && (waits || (elastic() && staying() >= options_.min_nodes));
  if (!goes_on) {
    if (nodes_.size() > 1) say(node.text() + " was told to end: so is the job");
    if (phase_ == Phase::gathering) return finish(128 + signal, nullptr, now);
    if (end_signal_ == 0) end_signal_ = signal;
    stop(Reason::end, signal);
  } else if (waits) {
    release(node);
  } else {
    say(node.text() + " was told to end: the job goes on without it");
    stop(Reason::membership, SIGTERM);
  }
  check_all_ended(now);
}

void Coordinator::release(const Node& node) {
  outbox_.send(node.id, {{"type", "finish"}, {"exit_code", 128 + node.drain_signal}, {"error", nullptr}});
}

void Coordinator::on_disconnect(NodeId id, const std::string& how, Time now) {
  const Node* node = find(id);
  if (node == nullptr) return;
  // Once a node's ranks have ended, nothing hangs on its launcher.
  const bool counts = node->active && !node->ended && phase_ != Phase::finishing;
  const bool expected = node->drain_signal != 0;
  const std::string text = node->text() + " " + how;
  std::erase_if(nodes_, [&](const Node& other) { return other.id == id; });
  if (counts && !expected) {
    losses_ += (losses_.empty() ? "" : "\n") + text;
    say(text);
    stop(Reason::node_lost, SIGTERM);
  }
  check_all_ended(now);
  if (phase_ == Phase::gathering) try_start(now);
}

void Coordinator::stop(Reason reason, int signal) {
  if (phase_ == Phase::gathering || phase_ == Phase::finishing) return;
  const bool first = phase_ == Phase::running;
  if (!first && reason < reason_) return;
  const bool worse = !first && reason > reason_;
  reason_ = reason;
  phase_ = Phase::stopping;
  for (auto& node : nodes_) node.ended = node.ended || node.info.mute;
  if (first || worse || reason == Reason::end) tell_stop(reason, signal);
}

void Coordinator::tell_stop(Reason reason, int signal) {
  Json message = {{"type", "stop"}, {"round", round_}, {"signal", signal}};
  // Ranks that have lost others cannot agree on a state to save.
  if (reason == Reason::failure || reason == Reason::node_lost) message["at_once"] = true;
  const auto timed_out = [](const Json& record) { return record.value("timed_out", Json()) == true; };
  if (reason == Reason::failure && std::any_of(records_.begin(), records_.end(), timed_out))
    message["stacks"] = true;
  broadcast(message);
}

void Coordinator::check_all_ended(Time now) {
  if (phase_ != Phase::running && phase_ != Phase::stopping) return;
  const bool all =
      std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return !node.active || node.ended; });
  if (!all) return note_mute_only(now);
  if (preempted_ && in_order_ && (phase_ == Phase::running || reason_ == Reason::end)) {
    after_preemption(now);
  } else if (phase_ == Phase::running && preempted_) {
    after_failure(now);
  } else if (phase_ == Phase::running) {
    finish(0, nullptr, now);
  } else {
    after_round(now);
  }
}

void Coordinator::note_mute_only(Time now) {
  const bool others = std::any_of(nodes_.begin(), nodes_.end(), [](const Node& node) {
    return node.active && !node.ended && !node.info.mute;
  });
  if (!others && !mute_deadline_) mute_deadline_ = now + options_.exit_barrier_timeout;
}

void Coordinator::after_round(Time now) {
  switch (reason_) {
    case Reason::membership:
      return gather(now);
    case Reason::failure:
      return after_failure(now);
    case Reason::node_lost:
      return after_loss(now);
    case Reason::end:
      return finish(128 + end_signal_, nullptr, now);
  }
}

void Coordinator::after_preemption(Time now) {
  say("preempted: the ranks were asked to stop and have saved their state (exit code " +
      std::to_string(kPreemptedExitCode) + "); start the job again to go on");
  finish(kPreemptedExitCode, nullptr, now);
}

void Coordinator::after_failure(Time now) {
  const FailureSummary verdict = options_.judge(records_);
  report_failure(verdict);
  const auto lived = std::chrono::duration_cast<std::chrono::milliseconds>(now - round_started_);
  const auto decision = restarts_.after({lived, best_step_});
  if (!verdict.preempted && !decision.reason.empty()) say(decision.reason);
  if (verdict.preempted || !decision.again || restart_count_ >= options_.max_restarts || has_mute_nodes())
    return finish(verdict.exit_code, verdict.error, now);
  pause_end_ = now + decision.pause;
  restart(pause_text(decision.pause), now);
}

void Coordinator::after_loss(Time now) {
  FailureSummary verdict;
  if (!records_.empty()) verdict = options_.judge(records_);
  // A rank that died of itself is the cause, even where its node went down after it.
  if (verdict.has_own_cause) return after_failure(now);
  if (staying() >= options_.min_nodes) return gather(now);
  report("lockstep run: FAILED: " + losses_ + "\n");
  if (restart_count_ >= options_.max_restarts) return finish(1, verdict.error, now);
  restart("", now);
}

bool Coordinator::has_mute_nodes() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.info.mute; });
}

void Coordinator::restart(const std::string& why, Time now) {
  ++restart_count_;
  say("restart " + std::to_string(restart_count_) + " of " + std::to_string(options_.max_restarts) + why);
  gather(now);
}

void Coordinator::gather(Time now) {
  phase_ = Phase::gathering;
  reason_ = Reason::membership;
  // Nobody is awaited before the pause is over.
  gathering_since_ = pause_end_.value_or(now);
  next_notice_ = gathering_since_ + options_.notice_interval;
  for (auto& node : nodes_) node.active = node.ended = false;
  try_start(now);
}

void Coordinator::try_start(Time now) {
  if (pause_end_ && now < *pause_end_) return;
  pause_end_.reset();
  const auto order = candidates(nodes_, options_.max_nodes);
  const int count = static_cast<int>(order.size());
  if (count < options_.min_nodes) {
    last_call_.reset();
  } else if (count == options_.max_nodes || round_ > 0 || (last_call_ && now >= *last_call_)) {
    start(order, now);
  } else if (!last_call_) {
    last_call_ = now + options_.last_call_timeout;
  }
}

void Coordinator::start(const std::vector<Node*>& order, Time now) {
  auto places = assign_ranks(order);
  ++round_;
  phase_ = Phase::running;
  round_started_ = now;
  best_step_.reset();
  last_call_.reset();
  records_.clear();
  losses_.clear();
  preempted_ = false;
  in_order_ = true;
  mute_deadline_.reset();
  begin_watch(now);
  outbox_.begin_round(round_);
  if (order.size() > 1) say(nodes_text(static_cast<int>(order.size())) + ": " + rank_map(order, places));
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i]->group_rank = places[i].group_rank;
    order[i]->active = true;
    order[i]->ended = false;
    places[i].round = round_;
    places[i].restart_count = restart_count_;
    places[i].max_restarts = options_.max_restarts;
    outbox_.send(order[i]->id, to_message(places[i]));
  }
}

void Coordinator::finish(int exit_code, const Json& error, Time now) {
  phase_ = Phase::finishing;
  close_deadline_ = now + options_.close_timeout;
  broadcast({{"type", "finish"}, {"exit_code", exit_code}, {"error", error}});
}

void Coordinator::drop_silent(Time now) {
  std::vector<NodeId> silent;
  for (const auto& node : nodes_) {
    if (sends_keep_alives(node) && now >= node.last_heard + options_.keep_alive_timeout)
      silent.push_back(node.id);
  }
  for (const NodeId id : silent) {
    outbox_.dismiss(id);
    on_disconnect(id,
                  "gave no sign of life for " + seconds_text(options_.keep_alive_timeout) +
                      ": its launcher or its network is dead",
                  now);
  }
}

void Coordinator::on_timer(Time now) {
  drop_silent(now);
  look_at_ranks(now);
  if (phase_ == Phase::finishing && now >= *close_deadline_) {
    for (const auto& node : nodes_) outbox_.dismiss(node.id);
    nodes_.clear();
  }
  if (phase_ == Phase::running && mute_deadline_ && now >= *mute_deadline_) {
    report("lockstep run: FAILED: torchrun's agents have not ended " +
           seconds_text(options_.exit_barrier_timeout) + " after all other nodes have: look at their logs\n");
    finish(1, nullptr, now);
  }
  if (phase_ != Phase::gathering) return;
  try_start(now);
  if (phase_ != Phase::gathering) return;
  if (staying() < options_.min_nodes && now >= gathering_since_ + options_.join_timeout) {
    report("lockstep run: FAILED: after " + seconds_text(options_.join_timeout) + " " + awaited() +
           " (--rdzv-conf join_timeout)\n");
    finish(1, nullptr, now);
  } else if (now >= next_notice_) {
    if (staying() < options_.min_nodes) say(awaited());
    next_notice_ = now + options_.notice_interval;
  }
}

std::string Coordinator::awaited() const {
  std::string here;
  std::vector<bool> seen(static_cast<std::size_t>(options_.max_nodes));
  bool numbered = false;
  for (const auto& node : nodes_) {
    if (node.drain_signal != 0) continue;
    here += (here.empty() ? "" : ", ") + node.info.host;
    if (!node.info.node_rank) continue;
    numbered = true;
    seen[static_cast<std::size_t>(*node.info.node_rank)] = true;
  }
  std::string missing;
  for (std::size_t i = 0; numbered && i < seen.size(); ++i) {
    if (!seen[i]) missing += (missing.empty() ? "; missing: node " : ", ") + std::to_string(i);
  }
  return nodes_text(staying()) + " of " + range_text(options_.min_nodes, options_.max_nodes) + " here (" +
         here + ")" + missing;
}

Coordinator::Time Coordinator::deadline() const {
  Time next = Time::max();
  for (const auto& node : nodes_) {
    if (sends_keep_alives(node)) next = std::min(next, node.last_heard + options_.keep_alive_timeout);
  }
  if (phase_ == Phase::finishing) next = std::min(next, *close_deadline_);
  if (phase_ == Phase::running && mute_deadline_) next = std::min(next, *mute_deadline_);
  if (watches()) next = std::min(next, next_look_);
  if (phase_ != Phase::gathering) return next;
  if (pause_end_) next = std::min(next, *pause_end_);
  next = std::min(next, next_notice_);
  if (staying() < options_.min_nodes) next = std::min(next, gathering_since_ + options_.join_timeout);
  return last_call_ ? std::min(next, *last_call_) : next;
}

bool Coordinator::finished() const {
  return phase_ == Phase::finishing && std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) {
           return node.id == 0 || node.info.mute;
         });
}

void Coordinator::say(const std::string& text) { broadcast({{"type", "text"}, {"text", text}}); }

void Coordinator::report(const std::string& text) { broadcast({{"type", "report"}, {"text", text}}); }

/// All that is known is said once, on the coordinator's own node; the others name the cause.
void Coordinator::report_failure(const FailureSummary& summary) {
  for (const auto& node : nodes_) {
    const bool is_own = node.id == 0;
    outbox_.send(node.id, {{"type", "report"}, {"text", is_own ? summary.report : summary.headline}});
  }
}

void Coordinator::broadcast(const Json& message) {
  for (const auto& node : nodes_) outbox_.send(node.id, message);
}

}  // namespace lockstep::launch
