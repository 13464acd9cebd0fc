#include "rendezvous/remote_coordinator_client.hpp"

#include <fmt/core.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/runtime/signal_free_thread.hpp"
#include "core/time.hpp"
#include "lockstep/core/error.hpp"
#include "net/address.hpp"
#include "net/socket.hpp"
#include "net/socket_owner.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

using net::Clock;

/// Time of one try: short, because the launcher's end waits for it. A slower name lookup continues in the
/// background, and a later try gets its result.
constexpr std::chrono::milliseconds kTryTime{1000};
constexpr std::chrono::milliseconds kPause{100};
/// What fails for this long in another way than by silence is a mistake, not a network that is still
/// starting.
constexpr std::chrono::seconds kPatience{20};

}  // namespace

RemoteCoordinatorClient::RemoteCoordinatorClient(Options options, Time now)
    : options_(std::move(options)),
      join_deadline_(now + options_.join_timeout),
      patience_end_(now + kPatience),
      next_notice_(now + kNoticeInterval),
      event_(net::open_event()),
      poll_(epoll_create1(EPOLL_CLOEXEC)),
      last_message_time_(now),
      next_ping_(now) {
  if (!event_ || !poll_)
    throw Error(std::string("cannot open a descriptor to wait for the coordinator: ") + std::strerror(errno) +
                ".");
  thread_ = signal_free_thread([this] { find_coordinator(); });
}

RemoteCoordinatorClient::~RemoteCoordinatorClient() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void RemoteCoordinatorClient::find_coordinator() {
  std::optional<Result> result;
  while (!stop_ && !(result = try_once())) std::this_thread::sleep_for(kPause);
  if (result) result_ = *std::move(result);
  net::raise_event(event_);
}

std::optional<RemoteCoordinatorClient::Result> RemoteCoordinatorClient::try_once() {
  std::vector<net::Address> addresses;
  try {
    addresses = net::resolve(options_.endpoint, std::min(join_deadline_, Clock::now() + kTryTime));
    if (options_.is_host && options_.is_host(addresses)) return ThisHost{};
    return net::connect_control(addresses, options_.secret,
                                std::min(join_deadline_, Clock::now() + kTryTime));
  } catch (const net::ControlError& error) {
    if (auto result = on_control_error(error, addresses)) return result;
    note_problem(error.what());
  } catch (const std::exception& error) {
    note_problem(error.what());
    const bool may_come = dynamic_cast<const TimeoutError*>(&error) != nullptr;
    if (!may_come && Clock::now() >= patience_end_) return error.what();
  }
  if (Clock::now() < join_deadline_) return std::nullopt;
  return fmt::format("not reached within {}: {}", format_seconds(options_.join_timeout), problem());
}

std::optional<RemoteCoordinatorClient::Result> RemoteCoordinatorClient::on_control_error(
    const net::ControlError& error, const std::vector<net::Address>& addresses) {
  switch (error.failure()) {
    case net::ControlFailure::plain_store:
      if (options_.torchrun) return addresses;
      return "a plain store listens there (torchrun's?), which is not a Lockstep coordinator: start "
             "'lockstep run' on every node, or use --rdzv-backend static";
    case net::ControlFailure::wrong_secret:
      return options_.port_in_use.empty()
                 ? fmt::format("another job listens there, or a node of this job with another secret; {}",
                               options_.secret_name)
                 : fmt::format("{} If that is a node of this job, it has another secret; {}",
                               options_.port_in_use, options_.secret_name);
    case net::ControlFailure::not_lockstep:
      return after_port_in_use(error);
    case net::ControlFailure::silent:
      // Another program, or a coordinator that is slow to answer.
      if (!options_.port_in_use.empty() && Clock::now() >= patience_end_) return after_port_in_use(error);
      break;
    case net::ControlFailure::nobody_listens:
    case net::ControlFailure::broken_off:
      break;
  }
  return std::nullopt;
}

std::string RemoteCoordinatorClient::after_port_in_use(const net::ControlError& error) const {
  return options_.port_in_use.empty() ? error.what()
                                      : fmt::format("{} {}", options_.port_in_use, error.what());
}

void RemoteCoordinatorClient::note_problem(const std::string& text) {
  const std::lock_guard lock(mutex_);
  problem_ = text;
}

std::string RemoteCoordinatorClient::problem() {
  const std::lock_guard lock(mutex_);
  return problem_;
}

int RemoteCoordinatorClient::descriptor() const {
  if (delegate_) return delegate_->descriptor();
  if (over_) return -1;
  return connection_ ? poll_.get() : event_.get();
}

CoordinatorClient::Time RemoteCoordinatorClient::deadline() const {
  if (delegate_) return delegate_->deadline();
  if (over_) return Time::max();
  if (connection_) return std::min(next_ping_, last_message_time_ + options_.keep_alive_timeout);
  return drain_signal_ == 0 ? next_notice_ : Time::min();
}

std::vector<CoordinatorMessage> RemoteCoordinatorClient::work(Time now) {
  if (delegate_) return delegate_->work(now);
  if (over_) return {};
  return connection_ ? receive(now) : search(now);
}

std::vector<CoordinatorMessage> RemoteCoordinatorClient::search(Time now) {
  if (drain_signal_ != 0) {
    // The coordinator does not know this node yet.
    over_ = true;
    return {Finish{128 + drain_signal_, nullptr}};
  }
  if (net::clear_event(event_)) return settle(now);
  if (now < next_notice_) return {};
  next_notice_ = now + kNoticeInterval;
  return {Notice{fmt::format("waiting for the coordinator at {}: {}", options_.endpoint.text(), problem())}};
}

std::vector<CoordinatorMessage> RemoteCoordinatorClient::settle(Time now) {
  thread_.join();
  if (auto* socket = std::get_if<net::FileDescriptor>(&result_)) {
    coordinator_ = net::remote_address(socket->get());
    connection_.emplace(std::move(*socket), poll_.get());
    last_message_time_ = now;
    next_ping_ = now + options_.keep_alive_interval;
  } else if (const auto* store = std::get_if<std::vector<net::Address>>(&result_)) {
    delegate_ = options_.torchrun(*store);
  } else if (std::holds_alternative<ThisHost>(result_)) {
    if (auto failure = become_host()) return {*std::move(failure)};
    if (!delegate_) return {};
  } else {
    over_ = true;
    return {CoordinatorLost{fmt::format("cannot join the job's coordinator at {}: {}",
                                        options_.endpoint.text(), std::get<std::string>(result_))}};
  }
  for (const auto& message : std::exchange(unsent_, {})) send(message, now);
  return work(now);
}

/// Returns why the job cannot go on. If another launcher of this job has become the host meanwhile, the
/// search goes on.
std::optional<CoordinatorLost> RemoteCoordinatorClient::become_host() {
  try {
    delegate_ = options_.host();
    return std::nullopt;
  } catch (const net::AddressInUse& error) {
    options_.is_host = nullptr;
    options_.port_in_use = error.what();
    thread_ = signal_free_thread([this] { find_coordinator(); });
    return std::nullopt;
  } catch (const std::exception& error) {
    over_ = true;
    return CoordinatorLost{error.what()};
  }
}

bool RemoteCoordinatorClient::finished() const { return !delegate_ || delegate_->finished(); }

std::vector<CoordinatorMessage> RemoteCoordinatorClient::receive(Time now) {
  std::vector<CoordinatorMessage> messages = connection_->receive<CoordinatorMessage>();
  if (!messages.empty()) last_message_time_ = now;
  for (const auto& message : messages) {
    if (const auto* request = std::get_if<VerifyPeerUid>(&message))
      connection_->send(PeerUidAnswer{request->id, net::verify_peer_uid(request->client, request->server)});
    over_ = over_ || std::holds_alternative<Finish>(message) || std::holds_alternative<Reject>(message);
  }
  keep_alive(now);
  if (connection_->closed() && !over_) {
    over_ = true;
    messages.push_back(
        CoordinatorLost{fmt::format("the job's coordinator, at {}, {}: the job cannot continue without it",
                                    coordinator_.text(), connection_->why_closed())});
  }
  return messages;
}

void RemoteCoordinatorClient::keep_alive(Time now) {
  if (over_) return;
  if (now >= last_message_time_ + options_.keep_alive_timeout)
    connection_->close(fmt::format("sent no keep-alive for {} (its launcher or the network is dead)",
                                   format_seconds(options_.keep_alive_timeout)));
  if (now < next_ping_) return;
  next_ping_ = now + options_.keep_alive_interval;
  connection_->send(Ping{});
}

net::HostPort RemoteCoordinatorClient::master() const {
  if (delegate_) return delegate_->master();
  return {options_.master_host.empty() ? coordinator_.host() : options_.master_host, coordinator_.port()};
}

void RemoteCoordinatorClient::send(const NodeMessage& message, Time now) {
  if (delegate_) return delegate_->send(message, now);
  if (connection_) return connection_->send(message);
  if (const auto* draining = std::get_if<Draining>(&message)) drain_signal_ = draining->signal;
  unsent_.push_back(message);
}

}  // namespace lockstep::launch
