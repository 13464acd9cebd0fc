#include "torchrun_interop/torchrun_client.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "failure/failure_analysis.hpp"
#include "lockstep/core/error.hpp"
#include "net/handshake.hpp"
#include "net/signal_free_thread.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// Between two looks at a store that is waited for: how soon a signal or the loss of the store is noticed.
constexpr auto kSlice = 200ms;
constexpr auto kAnswerTime = 30s;
/// One try to connect: how long the end of this object may wait for it.
constexpr auto kTryTime = 2s;

Clock::time_point answer_deadline() { return Clock::now() + kAnswerTime; }

/// Thrown in the thread when the object goes.
struct Stopped {};

std::vector<std::int64_t> read_numbers(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  std::vector<std::int64_t> numbers;
  for (const auto& value : json.is_array() ? json : nlohmann::json::array()) {
    if (value.is_number_integer()) numbers.push_back(value.get<std::int64_t>());
  }
  if (numbers.size() != 4)
    throw DataError("torchrun's agent has assigned ranks in a form that is not understood: " + text);
  return numbers;
}

/// Ranks of other nodes are not seen.
HangDetector detector_of(const TorchrunClient::Options& options) {
  return HangDetector({.timeout = options.heartbeat_timeout, .sees_all_ranks = false});
}

}  // namespace

TorchrunClient::TorchrunClient(Options options, const std::vector<net::Address>& store)
    : options_(std::move(options)),
      prefix_(options_.run_id + "/torchelastic/"),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      restarts_(options_.max_restarts, options_.restart_backoff),
      hang_detector_(detector_of(options_)) {
  if (!event_) throw Error(std::string("cannot open an event descriptor: ") + std::strerror(errno) + ".");
  thread_ = net::signal_free_thread([this, store] { run(store); });
}

TorchrunClient::~TorchrunClient() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    if (connection_) shutdown(connection_.get(), SHUT_RDWR);
  }
  changed_.notify_all();
  thread_.join();
}

void TorchrunClient::deliver(CoordinatorMessage message) {
  const std::lock_guard lock(mutex_);
  messages_.push_back(std::move(message));
  const std::uint64_t one = 1;
  while (write(event_.get(), &one, sizeof one) < 0 && errno == EINTR) continue;
}

std::vector<CoordinatorMessage> TorchrunClient::work(Time now) {
  if (pause_end_ && now >= *pause_end_) start_ranks(now);
  std::uint64_t count = 0;
  while (read(event_.get(), &count, sizeof count) < 0 && errno == EINTR) continue;
  const std::lock_guard lock(mutex_);
  // The first start is the thread's.
  if (!messages_.empty() && std::holds_alternative<Assignment>(messages_.back())) round_started_ = now;
  return std::exchange(messages_, {});
}

void TorchrunClient::send(const NodeMessage& message, Time now) {
  if (const auto* node = std::get_if<NodeInfo>(&message)) {
    const std::lock_guard lock(mutex_);
    node_ = *node;
    changed_.notify_all();
  } else if (const auto* ended = std::get_if<RoundEnded>(&message)) {
    on_round_ended(*ended, now);
  } else if (const auto* draining = std::get_if<Draining>(&message)) {
    drain_signal_ = draining->signal;
    // Nothing runs that could end.
    if (std::exchange(pause_end_, std::nullopt)) deliver(Finish{128 + drain_signal_, nullptr});
  } else if (const auto* report = std::get_if<StatusReport>(&message)) {
    on_status(*report);
  }
}

void TorchrunClient::on_status(const StatusReport& report) {
  const auto found = hang_detector_.look(report.ranks);
  if (!found) return;
  deliver(HangFound{.round = report.round,
                    .text = found->hang.text,
                    .ends_job = found->ends_job,
                    .limit = options_.heartbeat_timeout,
                    .rank = found->hang.stuck.front(),
                    .stuck = found->hang.stuck});
}

void TorchrunClient::on_round_ended(const RoundEnded& ended, Time now) {
  if (drain_signal_ != 0) return deliver(Finish{128 + drain_signal_, nullptr});
  if (ended.ok) {
    const std::lock_guard lock(mutex_);
    succeeded_ = true;
    changed_.notify_all();
    return;
  }
  const FailureSummary summary = analyze_failures(ended.failures);
  deliver(Report{summary.report});
  if (summary.preempted) return deliver(Finish{summary.exit_code, summary.error});
  const auto lived = std::chrono::duration_cast<std::chrono::milliseconds>(now - round_started_);
  const auto decision = restarts_.after({lived, ended.step});
  if (!decision.reason.empty()) deliver(Notice{decision.reason});
  if (!decision.again) return deliver(Finish{summary.exit_code, summary.error});
  pause_end_ = now + decision.pause;
  place_.restart_count = restarts_.used();
  ++place_.round;
  deliver(Notice{fmt::format("restart {} of {}{}", place_.restart_count, options_.max_restarts,
                             pause_text(decision.pause))});
  if (decision.pause.count() == 0) start_ranks(now);
}

void TorchrunClient::start_ranks(Time now) {
  pause_end_.reset();
  round_started_ = now;
  hang_detector_ = detector_of(options_);
  deliver(place_);
}

void TorchrunClient::run(const std::vector<net::Address>& store) {
  try {
    net::StoreClient client = connect(store);
    take_place(client);
    await_success(client);
    pass_barrier(client);
  } catch (const Stopped&) {
  } catch (const std::exception& error) {
    // Of no matter where it was broken off: nobody listens.
    deliver(CoordinatorLost{std::string("the store of torchrun's agent: ") + error.what()});
  }
}

net::StoreClient TorchrunClient::connect(const std::vector<net::Address>& store) {
  const auto deadline = answer_deadline();
  for (;; throw_if_stopped()) {
    const auto try_end = Clock::now() + kTryTime;
    try {
      net::StoreClient client(store, {}, std::min(deadline, try_end));
      auto connection = client.duplicate();
      const std::lock_guard lock(mutex_);
      if (stop_) throw Stopped();
      connection_ = std::move(connection);
      return client;
    } catch (const TimeoutError&) {
      if (try_end >= deadline) throw;
    } catch (const net::ControlError& error) {
      if (error.failure() != net::ControlFailure::silent || try_end >= deadline) throw;
    }
  }
}

void TorchrunClient::throw_if_stopped() {
  const std::lock_guard lock(mutex_);
  if (stop_) throw Stopped();
}

void TorchrunClient::take_place(net::StoreClient& client) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stop_ || node_.has_value(); });
  if (stop_) throw Stopped();
  const NodeInfo info = *node_;
  lock.unlock();
  const std::string index = fmt::to_string(options_.node_rank);
  const nlohmann::json role = {
      {"role", info.role}, {"rank", options_.node_rank}, {"local_world_size", info.local_world_size}};
  client.register_client(answer_deadline());
  client.set(prefix_ + "role_info/" + index, role.dump(), answer_deadline());
  const std::string key = prefix_ + "assigned_ranks/" + index;
  if (!await_key(client, key, Clock::now() + options_.timeout))
    throw TimeoutError("it has assigned no ranks within " + seconds_text(options_.timeout) +
                       ": some node is missing");
  const auto numbers = read_numbers(client.get(key, answer_deadline()));
  lock.lock();
  place_.max_restarts = options_.max_restarts;
  place_.group_rank = options_.node_rank;
  place_.group_world_size = options_.max_nodes;
  place_.first_rank = static_cast<int>(numbers[0]);
  place_.world_size = static_cast<int>(numbers[1]);
  place_.first_role_rank = static_cast<int>(numbers[2]);
  place_.role_world_size = static_cast<int>(numbers[3]);
  const Assignment start = place_;
  lock.unlock();
  deliver(start);
}

bool TorchrunClient::await_key(net::StoreClient& client, const std::string& key, Time deadline) {
  for (; Clock::now() < deadline; throw_if_stopped()) {
    if (client.wait({key}, std::min(deadline, Clock::now() + kSlice))) return true;
  }
  return false;
}

void TorchrunClient::await_success(net::StoreClient& client) {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kSlice, [this] { return stop_ || succeeded_; });
      if (stop_) throw Stopped();
      if (succeeded_) return;
    }
    // Fails when the agent has gone, which is how its end is noticed.
    client.contains({prefix_ + "role_info/0"}, answer_deadline());
  }
}

void TorchrunClient::pass_barrier(net::StoreClient& client) {
  const std::string name = prefix_ + "agent/terminal_state/";
  const auto members = client.add(name + "num_members", 1, answer_deadline());
  if (members == options_.max_nodes) client.set(name + "last_member", "<val_ignored>", answer_deadline());
  try {
    if (!await_key(client, name + "last_member", Clock::now() + options_.exit_barrier_timeout)) {
      deliver(Report{fmt::format("lockstep run: FAILED: the other nodes have not ended {} after this one\n",
                                 seconds_text(options_.exit_barrier_timeout))});
      return deliver(Finish{1, nullptr});
    }
  } catch (const CommunicationError&) {
    // The agent goes, and its store with it, as soon as all have come.
  }
  deliver(Finish{0, nullptr});
}

}  // namespace lockstep::launch
