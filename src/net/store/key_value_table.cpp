#include "net/store/key_value_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep::net {
namespace {

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

constexpr const char* kFull = "the store's memory limit is reached.";

Reservation reserve(MemoryBudget& budget, std::size_t bytes) {
  Reservation reservation(budget);
  reservation.grow(bytes, kFull);
  return reservation;
}

/// Parses the number at the beginning of a text, as c10d does.
std::int64_t number_in(const std::string& text) {
  try {
    return std::stoll(text);
  } catch (const std::logic_error&) {
    throw BadRequest("add: the key holds no number.");
  }
}

/// Wraps on overflow: no request may cause undefined behavior.
std::int64_t sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

template <class Map>
void erase_others(Map& map, std::string_view kept_prefix) {
  std::erase_if(map, [&](const auto& entry) { return !entry.first.starts_with(kept_prefix); });
}

}  // namespace

KeyValueTable::Stored KeyValueTable::stored(std::string bytes, std::size_t key_bytes) const {
  Reservation reservation = reserve(budget_, bytes.capacity() + key_bytes + kObjectOverhead);
  return std::make_shared<StoredBytes>(StoredBytes{std::move(bytes), std::move(reservation)});
}

/// Appends in place, with some spare capacity; while it grows, both copies are reserved.
void KeyValueTable::extend(StoredBytes& value, std::string_view bytes) const {
  constexpr std::size_t kMostRoom = 1 << 20;
  const std::size_t before = value.bytes.capacity();
  const std::size_t size = value.bytes.size() + bytes.size();
  if (size > before) {
    const std::size_t after = std::max(size, before + std::min(before, kMostRoom));
    const Reservation both = reserve(budget_, before);
    value.reservation.grow(after - before, kFull);
    value.bytes.reserve(after);
  }
  value.bytes += bytes;
}

void KeyValueTable::put(const std::string& key, Stored value) {
  values_[key] = std::move(value);
  note_change(key);
  arrived(key, kAll);
}

void KeyValueTable::set(const std::string& key, std::string bytes) {
  put(key, stored(std::move(bytes), key.size()));
}

Value KeyValueTable::get(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : found->second;
}

bool KeyValueTable::contains(const std::string& key) const {
  return values_.count(key) > 0 || queues_.count(key) > 0;
}

bool KeyValueTable::erase(const std::string& key) {
  changed_.erase(key);
  return values_.erase(key) > 0;
}

std::int64_t KeyValueTable::add(const std::string& key, std::int64_t amount) {
  const Value before = get(key);
  const std::int64_t total = sum(before ? number_in(before->bytes) : 0, amount);
  put(key, stored(fmt::to_string(total), key.size()));
  return total;
}

void KeyValueTable::append(const std::string& key, std::string_view bytes) {
  const auto found = values_.find(key);
  if (found == values_.end()) return put(key, stored(std::string(bytes), key.size()));
  if (found->second.use_count() > 1) {
    // An answer with the old value is still being sent.
    found->second = stored(found->second->bytes, key.size());
  }
  extend(*found->second, bytes);
  note_change(key);
}

Value KeyValueTable::compare_set(const std::string& key, std::string_view expected, std::string desired) {
  const Value before = get(key);
  if (!before && !expected.empty()) return nullptr;
  if (before && before->bytes != expected) return before;
  put(key, stored(std::move(desired), key.size()));
  return get(key);
}

void KeyValueTable::push(const std::string& queue, std::string bytes) {
  Stored value = stored(std::move(bytes), queue.size());
  queues_[queue].push_back(std::move(value));
  arrived(queue, 1);
}

Value KeyValueTable::pop(const std::string& queue) {
  const auto found = queues_.find(queue);
  if (found == queues_.end()) return nullptr;
  Value value = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) queues_.erase(found);
  return value;
}

std::size_t KeyValueTable::length(const std::string& queue) const {
  const auto found = queues_.find(queue);
  return found == queues_.end() ? 0 : found->second.size();
}

std::vector<std::string_view> KeyValueTable::keys() const {
  std::vector<std::string_view> names;
  for (const auto& [key, value] : values_) names.push_back(key);
  return names;
}

void KeyValueTable::clear(std::string_view kept_prefix) {
  erase_others(values_, kept_prefix);
  erase_others(queues_, kept_prefix);
  std::erase_if(changed_, [&](const auto& key) { return !key.starts_with(kept_prefix); });
}

bool KeyValueTable::wait(WaiterId waiter, const std::vector<std::string>& keys) {
  forget(waiter);
  Wait wait{{}, Reservation(budget_)};
  for (const auto& key : keys) {
    if (contains(key) || wait.missing.count(key) > 0) continue;
    wait.reservation.grow(2 * key.size() + 2 * kObjectOverhead, kFull);
    wait.missing.insert(key);
  }
  if (wait.missing.empty()) return true;
  for (const auto& key : wait.missing) waiters_[key].push_back(waiter);
  waits_[waiter] = std::move(wait);
  return false;
}

void KeyValueTable::cancel(WaiterId waiter) {
  // A wait that has ended and is not answered yet: its client expects one answer, not two.
  std::erase(ready_, waiter);
  forget(waiter);
}

void KeyValueTable::forget(WaiterId waiter) {
  const auto found = waits_.find(waiter);
  if (found == waits_.end()) return;
  for (const auto& key : found->second.missing) {
    auto& list = waiters_[key];
    list.remove(waiter);
    if (list.empty()) waiters_.erase(key);
  }
  waits_.erase(found);
}

std::vector<WaiterId> KeyValueTable::take_ready() { return std::exchange(ready_, {}); }

void KeyValueTable::arrived(const std::string& key, std::size_t most_waiters) {
  const auto found = waiters_.find(key);
  if (found == waiters_.end()) return;
  auto& list = found->second;
  for (std::size_t woken = 0; woken < most_waiters && !list.empty(); ++woken) {
    if (came(list.front(), key)) ready_.push_back(list.front());
    list.pop_front();
  }
  if (list.empty()) waiters_.erase(found);
}

/// Returns whether that was the waiter's last missing key.
bool KeyValueTable::came(WaiterId waiter, const std::string& key) {
  const auto found = waits_.find(waiter);
  if (found == waits_.end()) return false;
  found->second.missing.erase(key);
  if (!found->second.missing.empty()) return false;
  waits_.erase(found);
  return true;
}

void KeyValueTable::note_change(const std::string& key) {
  for (const auto& prefix : watched_) {
    if (key.starts_with(prefix)) changed_.insert(key);
  }
}

std::vector<std::string> KeyValueTable::take_changes() {
  std::vector<std::string> keys(changed_.begin(), changed_.end());
  changed_.clear();
  return keys;
}

}  // namespace lockstep::net
