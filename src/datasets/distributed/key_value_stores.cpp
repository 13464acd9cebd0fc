#include <fmt/core.h>

#include <atomic>
#include <map>
#include <mutex>

#include "lockstep/core/error.hpp"
#include "lockstep/core/world.hpp"
#include "lockstep/datasets/distributed_context.hpp"
#include "net/address.hpp"
#include "net/store/client.hpp"
#include "net/waiting_notice.hpp"

namespace lockstep {
namespace {

struct Table {
  std::mutex mutex;
  std::map<std::string, std::string> values;
};

class SharedTable final : public KeyValueStore {
 public:
  explicit SharedTable(std::shared_ptr<Table> table) : table_(std::move(table)) {}

  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(table_->mutex);
    table_->values[key] = value;
  }
  std::string set_if_absent(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(table_->mutex);
    return table_->values.emplace(key, value).first->second;
  }
  bool contains(const std::string& key) override {
    const std::lock_guard lock(table_->mutex);
    return table_->values.contains(key);
  }
  std::string get(const std::string& key) override {
    const std::lock_guard lock(table_->mutex);
    const auto found = table_->values.find(key);
    if (found == table_->values.end()) throw CommunicationError("no rank has set '" + key + "'.");
    return found->second;
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    const std::lock_guard lock(table_->mutex);
    auto& value = table_->values.emplace(key, "0").first->second;
    const std::int64_t sum = std::stoll(value) + amount;
    value = std::to_string(sum);
    return sum;
  }

 private:
  std::shared_ptr<Table> table_;
};

}  // namespace

std::vector<std::shared_ptr<KeyValueStore>> in_process_stores(int count) {
  const auto table = std::make_shared<Table>();
  std::vector<std::shared_ptr<KeyValueStore>> stores;
  for (int rank = 0; rank < count; ++rank) stores.push_back(std::make_shared<SharedTable>(table));
  return stores;
}

namespace {

/// How long the launcher may take to answer.
constexpr std::chrono::seconds kAnswer{60};

/// How long the name of the launcher's host may take to resolve.
constexpr std::chrono::minutes kNameTime{10};

net::Deadline soon() { return net::Clock::now() + kAnswer; }

/// Number of sessions of a rank in a launcher's store, counted over all connections of this process, because
/// the keys of earlier sessions still exist.
std::atomic<std::uint64_t>& meetings_of(const World& world) {
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
        met_(meetings_of(world)),
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
  std::uint64_t next_session() noexcept override { return met_++; }

 private:
  std::string prefix_;
  std::atomic<std::uint64_t>& met_;
  std::mutex mutex_;
  net::StoreClient client_;
};

}  // namespace

DistributedContext distributed_context(const World& world) {
  DistributedContext ranks{
      .rank = world.rank, .size = world.world_size, .local_rank = world.local_rank, .node = world.group_rank};
  if (ranks.alone()) return ranks;
  if (!world.use_agent_store) {
    throw UsageError(
        "distributed_context: no launcher hosts this job's store (TORCHELASTIC_USE_AGENT_STORE). Start it "
        "with "
        "'lockstep run', or give the ranks of a process group.");
  }
  ranks.store = std::make_shared<LauncherStore>(world);
  return ranks;
}

}  // namespace lockstep
