#include "agent/agent.hpp"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <ostream>
#include <utility>

#include "core/host_name.hpp"
#include "failure/error_file.hpp"
#include "lockstep/core/error.hpp"
#include "process/time_text.hpp"
#include "process/worker_process.hpp"
#include "rendezvous/message_connection.hpp"
#include "rendezvous/rank_messages.hpp"

namespace lockstep::launch {
namespace {

/// How long a node that was told to end, and has ended its ranks, waits for the coordinator's answer to its
/// end.
constexpr std::chrono::seconds kFinishAckTime{5};
/// What other nodes get of the stacks of this one, in bytes.
constexpr std::size_t kMostStacks = 256 << 10;

std::string text_of(const Json& message) {
  const auto found = message.find("text");
  return found != message.end() && found->is_string() ? found->get<std::string>() : "";
}

int number_of(const Json& message, const char* key, int otherwise) {
  const auto found = message.find(key);
  return found != message.end() && found->is_number_integer() ? found->get<int>() : otherwise;
}

/// Takes from the records of many ranks what makes them too long for a message: their details first, those of
/// the last ranks first, and then whole records. The first is of the rank that failed first.
void fit_into_message(Json& message) {
  const auto too_long = [&] { return message.dump().size() > MessageConnection::kLongestMessage / 2; };
  if (!message.contains("records")) return;
  Json& records = message["records"];
  for (auto record = records.rbegin(); record != records.rend() && too_long(); ++record) {
    for (const char* detail : {"last_lines", "message"}) (*record)[detail] = "";
    (*record)["error"] = nullptr;
  }
  while (records.size() > 1 && too_long()) records.erase(records.size() - 1);
}

NodeInfo this_node(const LaunchConfig& config) {
  NodeInfo node;
  node.run_id = config.run_id;
  node.host = host_name();
  node.pid = getpid();
  node.node_rank = config.node_rank;
  node.min_nodes = config.min_nodes;
  node.max_nodes = config.max_nodes;
  node.local_world_size = config.local_world_size;
  node.role = config.role;
  return node;
}

}  // namespace

Agent::Agent(const LaunchConfig& config, const Environment& environment, ProcessSupervisor& supervisor,
             CoordinatorClient& coordinator, Console& console)
    : config_(config),
      environment_(environment),
      supervisor_(supervisor),
      coordinator_(coordinator),
      log_(console.log()),
      forwarder_(console),
      events_(config, log_) {}

int Agent::run() {
  const std::string notice = thread_notice(config_, environment_);
  if (!notice.empty()) say(notice);
  if (!config_.log_dir.empty()) say("log files are in " + config_.log_dir);
  coordinator_.send(to_message(this_node(config_)), SignalFd::Clock::now());
  while (const auto place = await_round()) run_round(*place);
  await_others();
  events_.finished(end_signal_);
  return *exit_code_;
}

std::optional<Assignment> Agent::await_round() {
  while (!next_ && !exit_code_) wait_for_event();
  if (exit_code_) return std::nullopt;
  return std::exchange(next_, std::nullopt);
}

void Agent::run_round(const Assignment& place) {
  events_.met();
  shutdown_deadline_.reset();
  spec_ = spec_for(place);
  round_.emplace(config_, environment_, spec_, supervisor_.signals, supervisor_.reaper, forwarder_, log_,
                 coordinator_.judges_standstills());
  if (!start_ranks()) return;
  if (end_signal_ != 0) round_->stop(end_signal_);
  while (round_->ranks_run()) wait_for_event();
  // The ranks' last words come before whatever is said of their end.
  forwarder_.flush();
  held_stop_.reset();
  stacks_first_ = false;
  if (const auto stacks = stacks_.finish()) pass_on_stacks(*stacks);
  while (round_->end_orphans()) wait_for_event();
  forwarder_.finish();
  events_.ended(spec_, round_->workers());
  tell_ended();
  round_.reset();
  events_.waiting();
  if (force_kill_ && !exit_code_) exit_code_ = 128 + end_signal_;
  if (end_signal_ != 0)
    shutdown_deadline_ = SignalFd::Clock::now() + config_.shutdown_timeout + kFinishAckTime;
}

bool Agent::start_ranks() {
  try {
    round_->prepare();
    // The coordinator's lease does not wait until all of many ranks have started. Signals do: a rank that
    // fails finds all others begun, and so does one that is told to end.
    while (round_->start_next()) {
      // Where exec hangs, everything else goes on meanwhile.
      while (round_->is_starting()) wait_for_event();
      hear_coordinator(SignalFd::Clock::now());
    }
    events_.started(spec_, round_->workers());
    return true;
  } catch (const std::exception& error) {
    if (config_.max_nodes == 1) throw;
    const ProcessFailure record = round_->not_started(error);
    round_.reset();
    forwarder_.finish();
    coordinator_.send(
        {{"type", "ended"}, {"round", spec_.place.round}, {"ok", false}, {"records", {to_json(record)}}},
        SignalFd::Clock::now());
    return false;
  }
}

WorkerSpec Agent::spec_for(const Assignment& place) {
  WorkerSpec spec;
  const bool again = spec_.place.round > 0 && spec_.place.restart_count == place.restart_count;
  spec.place = place;
  spec.repeat = again ? spec_.repeat + 1 : 0;
  spec.host = host_name();
  spec.master = coordinator_.master();
  spec.folder = config_.log_dir.empty() ? supervisor_.folder.path() : config_.log_dir;
  spec.scratch = supervisor_.folder.path();
  return spec;
}

void Agent::await_others() {
  while (coordinator_.hosts_coordinator() && !coordinator_.finished() && !force_kill_) wait_for_event();
}

Agent::TimePoint Agent::next_deadline() const {
  TimePoint next = std::min(coordinator_.deadline(), stacks_.deadline());
  if (round_ && round_->deadline()) next = std::min(next, *round_->deadline());
  return shutdown_deadline_ ? std::min(next, *shutdown_deadline_) : next;
}

void Agent::wait_for_event() {
  const TimePoint next = next_deadline();
  const auto limit = next == TimePoint::max() ? std::nullopt : std::optional(next);
  const auto event = supervisor_.signals.wait(
      limit, {forwarder_.descriptor(), coordinator_.descriptor(), round_ ? round_->start_descriptor() : -1});
  if (event.wakeup == SignalFd::Wakeup::signal) on_signal(event.signal_number);
  if (event.wakeup == SignalFd::Wakeup::input) forwarder_.pump();
  const TimePoint now = SignalFd::Clock::now();
  on_deadlines(now);
  hear_coordinator(now);
}

void Agent::hear_coordinator(TimePoint now) {
  for (const auto& message : coordinator_.work(now)) on_message(message);
}

void Agent::on_deadlines(TimePoint now) {
  if (round_ && round_->deadline() && now >= *round_->deadline()) {
    if (round_->on_deadline()) end_hang(config_.heartbeat_timeout);
    if (const auto news = round_->news_of_ranks())
      coordinator_.send(still_message(spec_.place.round, *news), now);
  }
  if (const auto stacks = stacks_.work(now)) pass_on_stacks(*stacks);
  if (!shutdown_deadline_ || now < *shutdown_deadline_) return;
  shutdown_deadline_.reset();
  if (!exit_code_) exit_code_ = 128 + end_signal_;
}

void Agent::on_signal(int number) {
  if (number == SIGCHLD) {
    on_child_ended();
  } else if (supervisor_.signals.ends_job(number)) {
    on_end_signal(number);
  } else if (number == stacks_request()) {
    ask_for_stacks(std::nullopt);
    coordinator_.send({{"type", "stacks"}}, SignalFd::Clock::now());
  } else if (round_) {
    round_->pass_on(number);
  }
}

void Agent::on_end_signal(int number) {
  if (end_signal_ != 0) {
    say(signal_name(number) + " came again: " + (round_ ? "the ranks are killed" : "nothing is waited for"));
    force_kill_ = true;
    if (round_) {
      round_->kill();
    } else if (!exit_code_) {
      exit_code_ = 128 + end_signal_;
    }
    return;
  }
  end_signal_ = number;
  if (round_) {
    say(signal_name(number) + " came and was passed on; the ranks have " +
        seconds_text(config_.shutdown_timeout) + " to end");
    round_->stop(number);
  } else {
    shutdown_deadline_ = SignalFd::Clock::now() + kFinishAckTime;
  }
  coordinator_.send({{"type", "draining"}, {"signal", number}}, SignalFd::Clock::now());
}

void Agent::on_child_ended() {
  if (!round_ || !round_->reap()) return;
  const ProcessFailure failure = round_->first_failure();
  tell_failed(failure);
  if (!failure.timed_out() || round_->is_stopping()) return round_->stop_at_once();
  stop_after_stacks();  // Those that it has waited for still run.
}

void Agent::on_message(const Json& message) {
  const std::string type = type_of(message);
  if (type == "start") {
    next_ = read_assignment(message);
  } else if (type == "stop") {
    on_stop(message);
  } else if (type == "standstill") {
    on_hang(message);
  } else if (type == "stacks") {
    ask_for_stacks(message.value("for", NodeId{0}));
  } else if (type == "text") {
    say(text_of(message));
  } else if (type == "report") {
    log_ << text_of(message) << std::flush;
  } else if (type == "finish") {
    on_finish(message);
  } else if (type == "reject" || type == "lost") {
    on_lost(message);
  }
}

void Agent::on_stop(const Json& message) {
  const int round = number_of(message, "round", 0);
  if (next_ && next_->round == round) {
    // Start and stop came together: there is nothing to stop yet.
    next_.reset();
    const bool ok = true;
    return coordinator_.send({{"type", "ended"}, {"round", round}, {"ok", ok}}, SignalFd::Clock::now());
  }
  if (!round_ || round != spec_.place.round) return;
  if (message.value("stacks", Json()) == true && !stacks_first_ && !round_->is_stopping())
    show_stacks_first();
  if (stacks_first_) {
    held_stop_ = message;
  } else {
    obey_stop(message);
  }
}

void Agent::obey_stop(const Json& message) {
  if (message.value("at_once", Json()) == true) {
    round_->stop_at_once();
  } else if (!round_->is_stopping()) {
    // Else the ranks have their signal: this is the coordinator's answer to ours, and a second one means
    // hurry.
    round_->stop(number_of(message, "signal", SIGTERM));
  }
}

void Agent::on_hang(const Json& message) {
  if (!round_ || number_of(message, "round", 0) != spec_.place.round || !round_->stands_still()) return;
  if (message.value("ends", Json()) != true) {
    log_ << hang_notice(text_of(message)) << std::flush;
    return;
  }
  const int rank = number_of(message, "rank", -1);
  if (round_->has_rank(rank) && round_->blame(rank, text_of(message)))
    return end_hang(std::chrono::milliseconds(number_of(message, "limit", 0)));
  const auto stuck = message.value("stuck", std::vector<int>());
  const auto is_here = [this](int stuck_rank) { return round_->has_rank(stuck_rank); };
  // Whether the job ends is for the others to say; but these ranks are looked at before they are stopped.
  if (stuck.empty() || std::any_of(stuck.begin(), stuck.end(), is_here)) show_stacks_first();
}

void Agent::end_hang(std::chrono::milliseconds limit) {
  tell_failed(round_->first_failure());
  say("the job has hung for " + seconds_text(limit) + " (--heartbeat-timeout): it is ended");
  stop_after_stacks();
}

void Agent::stop_after_stacks() {
  show_stacks_first();
  held_stop_ = Json{{"at_once", true}};
}

void Agent::show_stacks_first() {
  stacks_first_ = true;
  ask_for_stacks(std::nullopt);
}

void Agent::ask_for_stacks(std::optional<NodeId> node) {
  if (round_) stacks_.ask(round_->stack_targets(), environment_, node, SignalFd::Clock::now());
}

void Agent::pass_on_stacks(const StackRequests::Answer& stacks) {
  if (stacks.here) log_ << stacks.text << std::flush;
  const std::string text = "lockstep run: host " + host_name() + ":\n" + stacks.text;
  for (const auto node : stacks.nodes) {
    coordinator_.send({{"type", "stacks_of"}, {"for", node}, {"text", text.substr(0, kMostStacks)}},
                      SignalFd::Clock::now());
  }
  stacks_first_ = false;
  if (const auto stop = std::exchange(held_stop_, std::nullopt)) obey_stop(*stop);
}

void Agent::on_finish(const Json& message) {
  exit_code_ = number_of(message, "exit_code", 1);
  if (round_) round_->stop(SIGTERM);
  if (*exit_code_ != 0) pass_on_error(message.value("error", Json()));
}

void Agent::on_lost(const Json& message) {
  if (exit_code_) return;
  log_ << "lockstep run: FAILED: " + text_of(message) + "\n" << std::flush;
  exit_code_ = end_signal_ == 0 ? 1 : 128 + end_signal_;
  if (round_) round_->stop_at_once();
}

void Agent::tell_failed(const ProcessFailure& failure) {
  coordinator_.send({{"type", "failed"}, {"round", spec_.place.round}, {"record", to_json(failure)}},
                    SignalFd::Clock::now());
}

void Agent::tell_ended() {
  // Ranks that are gone may be those that others wait for.
  const auto views = round_->views();
  if (round_->succeeded() && !views.empty())
    coordinator_.send(still_message(spec_.place.round, views), SignalFd::Clock::now());
  Json message = {{"type", "ended"}, {"round", spec_.place.round}, {"ok", round_->succeeded()}};
  if (round_->preempted()) message["preempted"] = true;
  if (const auto step = round_->best_step()) message["step"] = *step;
  if (!round_->succeeded()) {
    for (const auto& record : round_->records()) message["records"].push_back(to_json(record));
  }
  fit_into_message(message);
  coordinator_.send(message, SignalFd::Clock::now());
}

void Agent::pass_on_error(const Json& error) {
  const std::string file = find_variable(environment_, "TORCHELASTIC_ERROR_FILE").value_or("");
  try {
    pass_on_error_file(error, file, *exit_code_);
  } catch (const Error& failure) {
    say(std::string("the error is not passed on to TORCHELASTIC_ERROR_FILE: ") + failure.what());
  }
}

void Agent::say(const std::string& text) { log_ << "lockstep run: " + text + "\n" << std::flush; }

}  // namespace lockstep::launch
