#include "torchrun_interop/torchrun_client.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/json_text.hpp"
#include "core/runtime/signal_free_thread.hpp"
#include "core/time.hpp"
#include "lockstep/core/error.hpp"
#include "net/handshake.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

using net::Clock;
using namespace std::chrono_literals;

/// Polling interval of the store: how fast a signal or the loss of the store is noticed.
constexpr auto kSlice = 200ms;
constexpr auto kAnswerTime = 30s;
/// Time of one attempt to connect; the destructor may wait this long.
constexpr auto kOneTry = 2s;

Clock::time_point answer_deadline() { return Clock::now() + kAnswerTime; }

/// Thrown in the thread when the object is destroyed.
struct Stopped {};

std::vector<std::int64_t> read_numbers(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  std::vector<std::int64_t> numbers;
  for (const auto& value : json.is_array() ? json : nlohmann::json::array()) {
    if (value.is_number_integer()) numbers.push_back(value.get<std::int64_t>());
  }
  if (numbers.size() != 4)
    throw DataError("torchrun's agent has assigned ranks in an unknown format: " + text);
  return numbers;
}

}  // namespace

TorchrunClient::TorchrunClient(Options options, const std::vector<net::Address>& store)
    : options_(std::move(options)),
      prefix_(options_.job.run_id + "/torchelastic/"),
      event_(net::open_event()) {
  if (!event_) throw Error(std::string("cannot open an event descriptor: ") + std::strerror(errno) + ".");
  thread_ = signal_free_thread([this, store] { run(store); });
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

CoordinatorClient::Time TorchrunClient::deadline() const {
  if (!inbox_.empty()) return Time::min();
  return coordinator_ ? coordinator_->deadline() : Time::max();
}

std::vector<CoordinatorMessage> TorchrunClient::work(Time now) {
  net::clear_event(event_);
  std::unique_lock lock(mutex_);
  const auto delivered = std::exchange(delivered_, {});
  const NodeInfo info{.run_id = options_.job.run_id, .local_world_size = node_ ? node_->local_world_size : 1};
  lock.unlock();
  for (const auto& message : delivered) {
    if (const auto* assignment = std::get_if<Assignment>(&message)) {
      assignment_ = *assignment;
      CoordinatorOptions job = options_.job;
      job.min_nodes = job.max_nodes = 1;
      // The ranks of other nodes are not visible.
      job.sees_all_ranks = false;
      CoordinatorActions& actions = *this;
      coordinator_.emplace(job, actions, now).on_join(0, info, now);
    } else {
      inbox_.push_back(message);
    }
  }
  if (coordinator_ && now >= coordinator_->deadline()) coordinator_->on_timer(now);
  return std::exchange(inbox_, {});
}

void TorchrunClient::send(const NodeMessage& message, Time now) {
  if (const auto* node = std::get_if<NodeInfo>(&message)) {
    const std::lock_guard lock(mutex_);
    node_ = *node;
    changed_.notify_all();
  } else if (coordinator_) {
    coordinator_->on_message(0, message, now);
  } else if (const auto* draining = std::get_if<Draining>(&message)) {
    // Nothing is running that must end first.
    inbox_.push_back(Finish{128 + draining->signal, nullptr});
  }
}

/// Messages of this node's own coordinator, with torchrun's ranks, and torchrun's barrier at the end.
void TorchrunClient::send(NodeId, const CoordinatorMessage& message) {
  if (const auto* start = std::get_if<Assignment>(&message)) {
    assignment_.round = start->round;
    assignment_.restart_count = start->restart_count;
    assignment_.max_restarts = start->max_restarts;
    inbox_.push_back(assignment_);
  } else if (const auto* finish = std::get_if<Finish>(&message);
             finish != nullptr && finish->exit_code == 0) {
    const std::lock_guard lock(mutex_);
    succeeded_ = true;
    changed_.notify_all();
  } else {
    inbox_.push_back(message);
  }
}

void TorchrunClient::deliver(CoordinatorMessage message) {
  const std::lock_guard lock(mutex_);
  delivered_.push_back(std::move(message));
  net::raise_event(event_);
}

void TorchrunClient::run(const std::vector<net::Address>& store) {
  try {
    net::StoreClient client = connect(store);
    take_place(client);
    await_success(client);
    pass_barrier(client);
  } catch (const Stopped&) {
  } catch (const std::exception& error) {
    // Ignored if the connection was shut down by the destructor: nobody reads it then.
    deliver(CoordinatorLost{std::string("the store of torchrun's agent: ") + error.what()});
  }
}

net::StoreClient TorchrunClient::connect(const std::vector<net::Address>& store) {
  const auto deadline = answer_deadline();
  for (;; throw_if_stopped()) {
    const auto try_end = Clock::now() + kOneTry;
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
  client.set(prefix_ + "role_info/" + index, json_text(role), answer_deadline());
  const std::string key = prefix_ + "assigned_ranks/" + index;
  if (!await_key(client, key, Clock::now() + options_.job.join_timeout))
    throw TimeoutError("it has assigned no ranks within " + format_seconds(options_.job.join_timeout) +
                       ": some node is missing");
  const auto numbers = read_numbers(client.get(key, answer_deadline()));
  Assignment assignment;
  assignment.group_rank = options_.node_rank;
  assignment.group_world_size = options_.job.max_nodes;
  assignment.first_rank = static_cast<int>(numbers[0]);
  assignment.world_size = static_cast<int>(numbers[1]);
  assignment.first_role_rank = static_cast<int>(numbers[2]);
  assignment.role_world_size = static_cast<int>(numbers[3]);
  deliver(assignment);
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
    // Fails if the agent has ended.
    client.contains({prefix_ + "role_info/0"}, answer_deadline());
  }
}

void TorchrunClient::pass_barrier(net::StoreClient& client) {
  const std::string name = prefix_ + "agent/terminal_state/";
  const auto members = client.add(name + "num_members", 1, answer_deadline());
  if (members == options_.job.max_nodes) client.set(name + "last_member", "<val_ignored>", answer_deadline());
  try {
    if (!await_key(client, name + "last_member", Clock::now() + options_.job.exit_barrier_timeout)) {
      const std::string why = fmt::format("the other nodes have not ended {} after this one",
                                          format_seconds(options_.job.exit_barrier_timeout));
      deliver(Report{"lockstep run: FAILED: " + why + "\n"});
      return deliver(Finish{1, why});
    }
  } catch (const CommunicationError&) {
    // When all have arrived, the agent exits, and its store with it.
  }
  deliver(Finish{0, nullptr});
}

}  // namespace lockstep::launch
