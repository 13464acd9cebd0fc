#include "lockstep/comm/store.hpp"

#include <algorithm>
#include <future>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "c10d_handles.hpp"
#include "errors.hpp"
#include "library_log.hpp"
#include "lockstep/core/error.hpp"
#include "network.hpp"

namespace lockstep {
namespace {

using comm::to_intrusive;
using comm::to_shared;
using comm::translated;
using Milliseconds = std::chrono::milliseconds;

std::vector<std::uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::string endpoint(const World& world) {
  return world.master_addr + ":" + std::to_string(world.master_port);
}

/// Connects in a thread of its own: c10d's client has no deadline of its own against a peer that accepts and
/// then says nothing. On a timeout the thread is left to its fate; it holds nothing but its own arguments.
c10::intrusive_ptr<c10d::TCPStore> connect_with_deadline(const World& world,
                                                         const c10d::TCPStoreOptions& options) {
  using Result = c10::intrusive_ptr<c10d::TCPStore>;
  auto task = std::make_shared<std::packaged_task<Result()>>(
      [host = world.master_addr, options] { return c10::make_intrusive<c10d::TCPStore>(host, options); });
  std::future<Result> result = task->get_future();
  std::thread([task] { (*task)(); }).detach();
  const auto describe = [&] {
    return "rank " + std::to_string(world.rank) + " cannot reach the job's store at " + endpoint(world);
  };
  // The client itself gives up after the timeout when nobody listens; the second on top is for its answer to
  // come.
  if (result.wait_for(options.timeout + std::chrono::seconds(1)) != std::future_status::ready) {
    throw TimeoutError(describe() +
                       ": something listens there but does not speak the store's protocol, for " +
                       std::to_string(options.timeout.count()) +
                       " ms. Another program may hold the port: choose another --master-port (MASTER_PORT)");
  }
  return translated([&] { return result.get(); }, describe);
}

/// c10d's client waits for a listener too, but in pauses of a second, past its timeout, and without saying
/// who is missing.
void await_host(const World& world, Milliseconds timeout) {
  if (comm::await_listener(world.master_addr, world.master_port, timeout)) return;
  throw TimeoutError(
      "rank " + std::to_string(world.rank) + " cannot reach the job's store at " + endpoint(world) +
          ": nobody came to listen there within " + std::to_string(timeout.count()) + " ms. " +
          (world.use_agent_store ? "The launcher" : "Rank 0 is missing: it") +
          " should host the store; see that it runs, and that MASTER_ADDR and MASTER_PORT are the same "
          "everywhere",
      world.use_agent_store ? std::vector<int>{} : std::vector<int>{0});
}

c10::intrusive_ptr<c10d::TCPStore> join(const World& world, Milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = world.master_port;
  options.timeout = timeout;
  options.waitWorkers =
      false;  // The process group's first barrier names who is missing; c10d's wait does not.
  options.isServer = world.rank == 0 && !world.use_agent_store;
  if (!options.isServer) {
    await_host(world, timeout);
    return connect_with_deadline(world, options);
  }
  comm::ListenSocket socket(world.master_addr, world.master_port, world.local_world_size == world.world_size);
  options.masterListenFd = socket.release();
  return connect_with_deadline(world, options);
}

}  // namespace

Store Store::connect(const World& world, Milliseconds timeout) {
  if (world.master_addr.empty()) {
    throw UsageError(
        "a store needs an address: this process is a world of one without MASTER_ADDR. "
        "Use Store::in_memory(), or start the program with 'lockstep run'");
  }
  comm::settle_library_log(comm::LibraryLog::none);
  const auto store = join(world, timeout);
  const bool one_host = world.local_world_size == world.world_size;
  const Store result(to_shared<c10d::Store>(store),
                     comm::local_address_towards(world.master_addr, world.master_port, one_host));
  return result.with_prefix("lockstep/" + std::to_string(world.restart_count));
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
  translated([&] { store_->set(key, bytes(value)); }, [&] { return "store: set of '" + key + "' failed"; });
}

std::string Store::get(const std::string& key, Milliseconds timeout) const {
  if (!wait(key, timeout)) {
    throw TimeoutError("store: nobody set '" + key + "' within " + std::to_string(timeout.count()) + " ms");
  }
  return translated([&] { return text(store_->get(key)); },
                    [&] { return "store: get of '" + key + "' failed"; });
}

std::int64_t Store::add(const std::string& key, std::int64_t amount) const {
  return translated([&] { return store_->add(key, amount); },
                    [&] { return "store: add to '" + key + "' failed"; });
}

void Store::append(const std::string& key, const std::string& value) const {
  translated([&] { store_->append(key, bytes(value)); },
             [&] { return "store: append to '" + key + "' failed"; });
}

std::string Store::set_if_absent(const std::string& key, const std::string& value) const {
  return translated([&] { return text(store_->compareSet(key, bytes(""), bytes(value))); },
                    [&] { return "store: set of '" + key + "' failed"; });
}

bool Store::contains(const std::string& key) const {
  return translated([&] { return store_->check({key}); },
                    [&] { return "store: look-up of '" + key + "' failed"; });
}

bool Store::wait(const std::string& key, Milliseconds timeout) const {
  // To c10d no time at all means for ever.
  const auto limit = std::max(timeout, Milliseconds(1));
  try {
    translated([&] { store_->wait({key}, limit); }, [&] { return "store: wait for '" + key + "'"; });
    return true;
  } catch (const TimeoutError&) {
    return false;
  }
}

bool Store::erase(const std::string& key) const {
  return translated([&] { return store_->deleteKey(key); },
                    [&] { return "store: removal of '" + key + "' failed"; });
}

const std::string& Store::local_address() const { return local_address_; }

}  // namespace lockstep
