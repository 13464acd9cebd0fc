#include <chrono>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/core/world.hpp"
#include "lockstep/datasets/distributed_context.hpp"

namespace lockstep {
namespace {

/// How long the store may take to answer about an existing key.
constexpr std::chrono::seconds kAnswer{60};

class GroupKeyValueStore final : public KeyValueStore {
 public:
  explicit GroupKeyValueStore(Store store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override { store_.set(key, value); }
  std::string set_if_absent(const std::string& key, const std::string& value) override {
    return store_.set_if_absent(key, value);
  }
  bool contains(const std::string& key) override { return store_.contains(key); }
  std::string get(const std::string& key) override { return store_.get(key, kAnswer); }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return store_.add(key, amount); }

 private:
  Store store_;
};

}  // namespace

DistributedContext distributed_context(const World& world, const ProcessGroup& group) {
  DistributedContext ranks{.rank = group.rank(),
                           .size = group.size(),
                           .local_rank = world.local_rank,
                           .node = world.group_rank,
                           .device = group.device().str()};
  if (ranks.size > 1) ranks.store = std::make_shared<GroupKeyValueStore>(group.new_namespace().clone());
  return ranks;
}

}  // namespace lockstep
