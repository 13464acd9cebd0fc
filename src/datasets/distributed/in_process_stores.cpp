#include <map>
#include <mutex>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/distributed_context.hpp"

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
    if (found == table_->values.end()) throw CommunicationError("nobody has set '" + key + "'.");
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

}  // namespace lockstep
