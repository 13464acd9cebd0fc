#include "coordination/memory_store.hpp"

#include <condition_variable>
#include <map>
#include <mutex>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

struct Table {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
};

class MemoryStore final : public KeyValueStore {
  template <class Action>
  auto change(Action&& action) {
    const std::lock_guard lock(table_->mutex);
    table_->changed.notify_all();
    return action(table_->values);
  }

 public:
  explicit MemoryStore(std::shared_ptr<Table> table) : table_(std::move(table)) {}

  void set(const std::string& key, const std::string& value) override {
    change([&](auto& values) { values[key] = value; });
  }
  std::string get(const std::string& key) override {
    const std::lock_guard lock(table_->mutex);
    const auto found = table_->values.find(key);
    if (found == table_->values.end()) throw CommunicationError("no rank has set '" + key + "'.");
    return found->second;
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    return change([&](auto& values) {
      auto& value = values.emplace(key, "0").first->second;
      const std::int64_t sum = std::stoll(value) + amount;
      value = std::to_string(sum);
      return sum;
    });
  }
  void append(const std::string& key, const std::string& value) override {
    change([&](auto& values) { values[key] += value; });
  }
  std::string set_if_absent(const std::string& key, const std::string& value) override {
    return change([&](auto& values) { return values.emplace(key, value).first->second; });
  }
  bool contains(const std::string& key) override {
    const std::lock_guard lock(table_->mutex);
    return table_->values.contains(key);
  }
  bool wait(const std::string& key, Milliseconds limit) override {
    std::unique_lock lock(table_->mutex);
    return table_->changed.wait_for(lock, limit, [&] { return table_->values.contains(key); });
  }
  bool erase(const std::string& key) override {
    return change([&](auto& values) { return values.erase(key) > 0; });
  }

 private:
  std::shared_ptr<Table> table_;
};

}  // namespace

std::vector<std::shared_ptr<KeyValueStore>> in_process_stores(int count) {
  const auto table = std::make_shared<Table>();
  std::vector<std::shared_ptr<KeyValueStore>> stores;
  for (int rank = 0; rank < count; ++rank) stores.push_back(std::make_shared<MemoryStore>(table));
  return stores;
}

}  // namespace lockstep
