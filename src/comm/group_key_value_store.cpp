#include "comm/group_key_value_store.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "comm/errors.hpp"
#include "coordination/polling_wait.hpp"

namespace lockstep::comm {
namespace {

class GroupKeyValueStore : public KeyValueStore {
 public:
  GroupKeyValueStore(Store store, Milliseconds answer) : store_(std::move(store)), answer_(answer) {}

  void set(const std::string& key, const std::string& value) override { store_.set(key, value); }
  void set_many(const std::vector<std::pair<std::string, std::string>>& values) override {
    std::vector<std::string> keys;
    std::vector<std::vector<std::uint8_t>> bytes;
    for (const auto& [key, value] : values) {
      keys.push_back(key);
      bytes.emplace_back(value.begin(), value.end());
    }
    translated([&] { store_.c10d_store()->multiSet(keys, bytes); },
               [&] { return "store: set of '" + keys.front() + "' and others failed"; });
  }
  std::string get(const std::string& key) override { return store_.get(key, answer_); }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return store_.add(key, amount); }
  void append(const std::string& key, const std::string& value) override { store_.append(key, value); }
  std::string set_if_absent(const std::string& key, const std::string& value) override {
    return store_.set_if_absent(key, value);
  }
  bool contains(const std::string& key) override { return store_.contains(key); }
  bool wait(const std::string& key, Milliseconds limit) override { return store_.wait(key, limit); }
  bool erase(const std::string& key) override { return store_.erase(key); }

 private:
  Store store_;
  Milliseconds answer_;
};

class SharedGroupKeyValueStore final : public GroupKeyValueStore {
 public:
  using GroupKeyValueStore::GroupKeyValueStore;
  bool wait(const std::string& key, Milliseconds limit) override { return poll_for_key(*this, key, limit); }
};

const c10d::Store* innermost(const Store& store) {
  c10d::Store* const outer = store.c10d_store().get();
  auto* const prefix = dynamic_cast<c10d::PrefixStore*>(outer);
  return prefix == nullptr ? outer : prefix->getUnderlyingNonPrefixStore().get();
}

}  // namespace

std::shared_ptr<KeyValueStore> key_value_store(Store store, std::chrono::milliseconds answer) {
  return std::make_shared<GroupKeyValueStore>(std::move(store), answer);
}

std::shared_ptr<KeyValueStore> shared_key_value_store(Store store, std::chrono::milliseconds answer) {
  return std::make_shared<SharedGroupKeyValueStore>(std::move(store), answer);
}

coordination::RankSession make_session(const Store& store, GroupInfo members) {
  return {key_value_store(store), "", std::move(members)};
}

Store bounded(const Store& store, std::chrono::milliseconds answer) {
  Store own = store.clone();
  if (innermost(own) != innermost(store)) own.c10d_store()->setTimeout(answer);
  return own;
}

}  // namespace lockstep::comm
