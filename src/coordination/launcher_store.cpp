#include "coordination/launcher_store.hpp"

#include <fmt/core.h>

#include <atomic>
#include <map>
#include <mutex>

#include "coordination/polling_wait.hpp"
#include "lockstep/core/world.hpp"
#include "net/address.hpp"
#include "net/store/client.hpp"
#include "net/waiting_notice.hpp"

namespace lockstep {
namespace {

/// How long the launcher may take to answer.
constexpr std::chrono::seconds kAnswer{60};

/// How long the name of the launcher's host may take to resolve.
constexpr std::chrono::minutes kNameTime{10};

net::Deadline soon() { return net::Clock::now() + kAnswer; }

/// Number of sessions of a rank in a launcher's store, counted over all connections of this process, because
/// the keys of earlier sessions still exist.
std::atomic<std::uint64_t>& sessions_of(const World& world) {
  static std::mutex mutex;
  static std::map<std::string, std::atomic<std::uint64_t>> counts;
  const std::lock_guard lock(mutex);
  return counts[fmt::format("{}:{} {} {} {}", world.master_addr, world.master_port, world.run_id,
                            world.restart_count, world.rank)];
}

std::vector<net::Address> addresses_of(const World& world) {
  const net::WaitingNotice notice(
      fmt::format("rank {}", world.rank),
      fmt::format("for the name '{}' (MASTER_ADDR), which does not resolve yet", world.master_addr));
  return net::resolve(world.master_addr, world.master_port, net::Clock::now() + kNameTime);
}

class LauncherStore final : public KeyValueStore {
 public:
  explicit LauncherStore(const World& world)
      : prefix_(fmt::format("lockstep-map/{}/", world.restart_count)),
        sessions_(sessions_of(world)),
        client_(addresses_of(world), {.secret = world.job_token}, soon()) {}

  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    client_.set(prefix_ + key, value, soon());
  }
  std::string set_if_absent(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    return client_.compare_set(prefix_ + key, "", value, soon());
  }
  bool contains(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    return client_.contains({prefix_ + key}, soon());
  }
  std::string get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    return client_.get(prefix_ + key, soon());
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    const std::lock_guard lock(mutex_);
    return client_.add(prefix_ + key, amount, soon());
  }
  void append(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    client_.append(prefix_ + key, value, soon());
  }
  bool wait(const std::string& key, Milliseconds limit) override { return poll_for_key(*this, key, limit); }
  bool erase(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    return client_.erase(prefix_ + key, soon());
  }
  std::uint64_t next_session() noexcept override { return sessions_++; }

 private:
  std::string prefix_;
  std::atomic<std::uint64_t>& sessions_;
  std::mutex mutex_;
  net::StoreClient client_;
};

}  // namespace

std::shared_ptr<KeyValueStore> connect_to_launcher_store(const World& world) {
  return std::make_shared<LauncherStore>(world);
}

}  // namespace lockstep
