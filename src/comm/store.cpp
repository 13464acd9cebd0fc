#include "lockstep/comm/store.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "comm/c10d_handles.hpp"
#include "comm/errors.hpp"
#include "comm/tcp_store_adapter.hpp"
#include "lockstep/core/error.hpp"
#include "net/address.hpp"
#include "net/handshake.hpp"
#include "net/socket.hpp"
#include "net/waiting_notice.hpp"

namespace lockstep {
namespace {

using comm::to_intrusive;
using comm::to_shared;
using comm::translated;
using Milliseconds = std::chrono::milliseconds;

/// Runs an operation on a key; `what`: "set of".
template <class Action>
auto on_key(const char* what, const std::string& key, Action&& action) {
  return translated(std::forward<Action>(action),
                    [&] { return fmt::format("store: {} '{}' failed", what, key); });
}

std::vector<std::uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

bool is_on_one_host(const World& world) { return world.local_world_size == world.world_size; }

net::FileDescriptor listen(const World& world, const std::vector<net::Address>& addresses) {
  if (is_on_one_host(world) && net::is_local(addresses.front())) return net::listen_at(addresses.front());
  return net::listen_everywhere(world.master_port);
}

/// The addresses of MASTER_ADDR, with MASTER_PORT. Throws TimeoutError if it does not resolve by then.
/// *Local*.
std::vector<net::Address> master_addresses(const World& world, net::Deadline deadline) {
  const net::WaitingNotice notice(
      fmt::format("rank {}", world.rank),
      fmt::format("for the name '{}' (MASTER_ADDR), which does not resolve yet", world.master_addr));
  try {
    return net::resolve(world.master_addr, world.master_port, deadline);
  } catch (const TimeoutError& error) {
    throw TimeoutError(fmt::format("MASTER_ADDR='{}' does not resolve: {}", world.master_addr, error.what()));
  }
}

/// The store of a job, hosted by rank 0. If all ranks are on this host, it listens only at the first of
/// `addresses`. Otherwise it listens on every interface, because a host's own name often resolves to loopback
/// on the host itself and to another address elsewhere. With a job token, clients of other hosts must prove
/// it. Throws CommunicationError with the system's error and the process that uses the port. *Local*.
std::shared_ptr<net::Server> host_store(const World& world, const std::vector<net::Address>& addresses) {
  net::ServerOptions options;
  options.secret = world.job_token;
  options.every_host = world.job_token.empty();
  // A rank has no agents on other hosts to ask.
  options.verify_peer_uid = false;
  try {
    return std::make_shared<net::Server>(listen(world, addresses), options);
  } catch (const CommunicationError& error) {
    throw CommunicationError(
        fmt::format("rank 0 cannot listen on port {} (MASTER_ADDR='{}'): {} The port is --master-port "
                    "(MASTER_PORT); it may be left to the launcher.",
                    world.master_port, world.master_addr, error.what()));
  }
}

/// The address of the interface through which this host reaches `target`, as seen by others: if that is
/// loopback and the job is not on `one_host`, the first address of another interface. Sends nothing. *Local*.
std::string local_address_towards(const net::Address& target, bool one_host) {
  const net::Address local = net::local_address_towards(target);
  if (local.size() == 0) return "";
  if (one_host || !local.is_loopback()) return local.host();
  const auto others = net::interface_addresses();
  return (others.empty() ? local : others.front()).host();
}

std::string unreached(const World& world) {
  return fmt::format("rank {} cannot reach the job's store at {}:{}: ", world.rank, world.master_addr,
                     world.master_port);
}

[[noreturn]] void fail_alone(const World& world, Milliseconds timeout, const std::string& reason) {
  throw TimeoutError(
      fmt::format("{}nothing listened there within {} ms ({}) {} should host the store; see that it "
                  "runs, and that MASTER_ADDR and MASTER_PORT are the same everywhere",
                  unreached(world), timeout.count(), reason,
                  world.use_agent_store ? "The launcher" : "Rank 0 is missing: it"),
      world.use_agent_store ? std::vector<int>{} : std::vector<int>{0});
}

[[noreturn]] void fail_to_join(const World& world, const net::ControlError& error) {
  const std::string text = unreached(world) + error.what() + " The port is --master-port (MASTER_PORT).";
  if (error.failure() == net::ControlFailure::silent) throw TimeoutError(text);
  throw CommunicationError(text);
}

/// Where this process reaches the store that it hosts.
net::Address own_address(const net::Server& server) {
  const net::Address address = server.address();
  return address.is_unspecified() ? net::Address::loopback(address.port()) : address;
}

c10::intrusive_ptr<c10d::Store> join(const World& world, std::vector<net::Address> addresses,
                                     Milliseconds timeout) {
  std::shared_ptr<net::Server> hosted;
  if (world.rank == 0 && !world.use_agent_store) {
    hosted = host_store(world, addresses);
    addresses = {own_address(*hosted)};
  }
  const net::StoreClientOptions options{.secret = world.job_token};
  const net::WaitingNotice notice(
      fmt::format("rank {}", world.rank),
      fmt::format("for the job's store at {}:{} (MASTER_ADDR, MASTER_PORT), where "
                  "nothing answers yet; {} should host it",
                  world.master_addr, world.master_port, world.use_agent_store ? "the launcher" : "rank 0"));
  try {
    return comm::make_tcp_store_adapter(std::move(addresses), options, timeout, std::move(hosted));
  } catch (const net::ControlError& error) {
    fail_to_join(world, error);
  } catch (const TimeoutError& error) {
    fail_alone(world, timeout, error.what());
  }
}

}  // namespace

Store Store::connect(const World& world, Milliseconds timeout) {
  if (world.master_addr.empty()) {
    throw UsageError(
        "a store needs an address: this process is a world of one without MASTER_ADDR. "
        "Use Store::in_memory(), or start the program with 'lockstep run'");
  }
  comm::settle_library_log(comm::LibraryLog::none);
  const auto addresses = master_addresses(world, net::Clock::now() + timeout);
  const Store result(to_shared<c10d::Store>(join(world, addresses, timeout)),
                     local_address_towards(addresses.front(), is_on_one_host(world)));
  return result.with_prefix(fmt::format("lockstep/{}", world.restart_count));
}

Store Store::in_memory() { return Store(to_shared<c10d::Store>(c10::make_intrusive<c10d::HashStore>())); }

Store::Store(std::shared_ptr<c10d::Store> store) : Store(std::move(store), "") {}

Store::Store(std::shared_ptr<c10d::Store> store, std::string local_address)
    : store_(std::move(store)), local_address_(std::move(local_address)) {}

Store Store::with_prefix(const std::string& prefix) const {
  return {to_shared<c10d::Store>(c10::make_intrusive<c10d::PrefixStore>(prefix, to_intrusive(store_))),
          local_address_};
}

Store Store::clone() const {
  return translated([&] { return Store(to_shared(store_->clone()), local_address_); },
                    [] { return "a second connection to the job's store failed"; });
}

void Store::set(const std::string& key, const std::string& value) const {
  on_key("set of", key, [&] { store_->set(key, bytes(value)); });
}

std::string Store::get(const std::string& key, Milliseconds timeout) const {
  if (!wait(key, timeout)) {
    throw TimeoutError(fmt::format("store: no rank set '{}' within {} ms", key, timeout.count()));
  }
  return on_key("get of", key, [&] { return text(store_->get(key)); });
}

std::int64_t Store::add(const std::string& key, std::int64_t amount) const {
  return on_key("add to", key, [&] { return store_->add(key, amount); });
}

void Store::append(const std::string& key, const std::string& value) const {
  on_key("append to", key, [&] { store_->append(key, bytes(value)); });
}

std::string Store::set_if_absent(const std::string& key, const std::string& value) const {
  return on_key("set of", key, [&] { return text(store_->compareSet(key, bytes(""), bytes(value))); });
}

bool Store::contains(const std::string& key) const {
  return on_key("look-up of", key, [&] { return store_->check({key}); });
}

bool Store::wait(const std::string& key, Milliseconds timeout) const {
  // c10d treats a timeout of zero as infinite.
  const auto limit = std::max(timeout, Milliseconds(1));
  try {
    on_key("wait for", key, [&] { store_->wait({key}, limit); });
    return true;
  } catch (const TimeoutError&) {
    return false;
  }
}

bool Store::erase(const std::string& key) const {
  return on_key("removal of", key, [&] { return store_->deleteKey(key); });
}

const std::string& Store::local_address() const { return local_address_; }

}  // namespace lockstep
