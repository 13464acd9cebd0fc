#include "rendezvous/remote_coordinator_client.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "lockstep/core/error.hpp"
#include "net/control.hpp"
#include "net/resolve.hpp"
#include "net/signal_free_thread.hpp"
#include "process/time_text.hpp"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;

/// One try; short, so that the end of the launcher does not wait for it.
constexpr std::chrono::seconds kTryTime{1};
/// A look-up that a dead name server holds up answers by the next one in this time.
constexpr std::chrono::seconds kResolveTime{8};
constexpr std::chrono::milliseconds kPause{100};
/// A name that nobody knows for so long is a mistake, not a network that is coming up.
constexpr std::chrono::seconds kNameTime{20};

}  // namespace

RemoteCoordinatorClient::RemoteCoordinatorClient(Options options, Time now)
    : options_(std::move(options)),
      until_(now + options_.join_timeout),
      next_notice_(now + options_.notice_interval),
      name_until_(now + kNameTime),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_) throw Error(std::string("cannot open an event descriptor: ") + std::strerror(errno) + ".");
  thread_ = net::signal_free_thread([this] { find_coordinator(); });
}

RemoteCoordinatorClient::~RemoteCoordinatorClient() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void RemoteCoordinatorClient::find_coordinator() {
  while (!stop_ && !try_once()) std::this_thread::sleep_for(kPause);
  const std::uint64_t one = 1;
  while (write(event_.get(), &one, sizeof one) < 0 && errno == EINTR) continue;
}

bool RemoteCoordinatorClient::try_once() {
  std::vector<net::Address> addresses;
  try {
    addresses = net::resolve(options_.endpoint, std::min(until_, Clock::now() + kResolveTime));
    auto socket = net::connect_control(addresses, options_.secret, std::min(until_, Clock::now() + kTryTime));
    return conclude([&] { result_.socket = std::move(socket); });
  } catch (const net::ControlError& error) {
    if (error.failure() == net::ControlFailure::plain_store) return meet_plain_store(addresses);
    if (error.failure() == net::ControlFailure::wrong_secret ||
        error.failure() == net::ControlFailure::not_lockstep)
      return give_up(error.what());
    note_problem(error.what());
  } catch (const TimeoutError& error) {
    note_problem(error.what());
  } catch (const Error& error) {
    note_problem(error.what());
    if (Clock::now() >= name_until_) return give_up(error.what());
  } catch (const std::exception& error) {
    note_problem(error.what());
  }
  if (Clock::now() < until_) return false;
  return give_up("not reached within " + seconds_text(options_.join_timeout) + ": " + problem());
}

bool RemoteCoordinatorClient::meet_plain_store(const std::vector<net::Address>& addresses) {
  if (!options_.python)
    return give_up(
        "a plain store listens there (torchrun's?), which is no coordinator of a job of this kind");
  return conclude([&] { result_.plain_store = addresses; });
}

bool RemoteCoordinatorClient::conclude(const std::function<void()>& write_result) {
  const std::lock_guard lock(mutex_);
  write_result();
  return true;
}

bool RemoteCoordinatorClient::give_up(const std::string& why) {
  return conclude([&] { result_.failure = why; });
}

void RemoteCoordinatorClient::note_problem(const std::string& text) {
  const std::lock_guard lock(mutex_);
  result_.last_problem = text;
}

std::string RemoteCoordinatorClient::problem() {
  const std::lock_guard lock(mutex_);
  return result_.last_problem;
}

int RemoteCoordinatorClient::descriptor() const {
  return found_ ? found_->descriptor() : failed_ ? -1 : event_.get();
}

CoordinatorClient::Time RemoteCoordinatorClient::deadline() const {
  if (found_) return found_->deadline();
  if (failed_) return Time::max();
  return drain_signal_ == 0 ? next_notice_ : Time::min();
}

std::vector<Json> RemoteCoordinatorClient::work(Time now) {
  if (found_) return found_->work(now);
  if (failed_) return {};
  if (drain_signal_ != 0) {
    // Nobody knows of this node yet.
    failed_ = true;
    return {{{"type", "finish"}, {"exit_code", 128 + drain_signal_}, {"error", nullptr}}};
  }
  std::uint64_t count = 0;
  if (read(event_.get(), &count, sizeof count) == sizeof count) return settle(now);
  if (now < next_notice_) return {};
  next_notice_ = now + options_.notice_interval;
  return {{{"type", "text"},
           {"text", "waiting for the coordinator at " + options_.endpoint.text() + ": " + problem()}}};
}

std::vector<Json> RemoteCoordinatorClient::settle(Time now) {
  thread_.join();
  if (result_.socket) {
    const net::Address coordinator = net::remote_address(result_.socket.get());
    found_ = std::make_unique<CoordinatorConnection>(MessageConnection(std::move(result_.socket)),
                                                     coordinator, options_.times, now);
  } else if (!result_.plain_store.empty()) {
    found_ = options_.python(result_.plain_store);
  } else {
    failed_ = true;
    return {{{"type", "lost"},
             {"text",
              "cannot join the job's coordinator at " + options_.endpoint.text() + ": " + result_.failure}}};
  }
  for (const auto& message : std::exchange(unsent_, {})) found_->send(message, now);
  return found_->work(now);
}

void RemoteCoordinatorClient::send(const Json& message, Time now) {
  if (found_) return found_->send(message, now);
  if (type_of(message) == "draining") drain_signal_ = message.value("signal", SIGTERM);
  unsent_.push_back(message);
}

}  // namespace lockstep::launch
