#include "comm/tcp_store_adapter.hpp"

#include <c10/util/Exception.h>

#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Milliseconds = std::chrono::milliseconds;

std::string_view text(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
Bytes bytes(std::string_view text) { return {text.begin(), text.end()}; }

/// To c10d no time at all means for ever.
net::Deadline deadline_of(Milliseconds timeout) {
  constexpr std::chrono::hours kForEver{24 * 365};
  const bool bounded = timeout > Milliseconds(0) && timeout < kForEver;
  return net::Clock::now() + (bounded ? timeout : Milliseconds(kForEver));
}

[[noreturn]] void fail_late(const std::vector<std::string>& keys, Milliseconds timeout) {
  std::string names;
  for (const auto& key : keys) names += (names.empty() ? "" : ", ") + key;
  C10_THROW_ERROR(DistStoreError,
                  "wait timeout after " + std::to_string(timeout.count()) + "ms, keys: " + names);
}

}  // namespace

TcpStoreAdapter::TcpStoreAdapter(std::vector<net::Address> addresses, net::StoreClientOptions options,
                                 Milliseconds timeout, std::shared_ptr<net::Server> hosted)
    : Store(timeout),
      addresses_(std::move(addresses)),
      options_(std::move(options)),
      hosted_(std::move(hosted)),
      client_(addresses_, options_, deadline_of(timeout)) {}

template <class Action>
auto TcpStoreAdapter::talk(const Milliseconds& timeout, Action&& action) {
  const std::lock_guard lock(mutex_);
  try {
    return action(client_, deadline_of(timeout));
  } catch (const TimeoutError& error) {
    C10_THROW_ERROR(DistStoreError,
                    "store timeout after " + std::to_string(timeout.count()) + " ms: " + error.what());
  } catch (const CommunicationError& error) {
    C10_THROW_ERROR(DistNetworkError, error.what());
  }
}

template <class Action>
auto TcpStoreAdapter::talk(Action&& action) {
  return talk(timeout_, std::forward<Action>(action));
}

c10::intrusive_ptr<c10d::Store> TcpStoreAdapter::clone() {
  return c10::make_intrusive<TcpStoreAdapter>(addresses_, options_, timeout_, hosted_);
}

void TcpStoreAdapter::set(const std::string& key, const Bytes& value) {
  talk([&](auto& client, auto deadline) { client.set(key, text(value), deadline); });
}

Bytes TcpStoreAdapter::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
  return talk([&](auto& client, auto deadline) {
    return bytes(client.compare_set(key, text(expected), text(desired), deadline));
  });
}

Bytes TcpStoreAdapter::get(const std::string& key) {
  return talk([&](auto& client, auto deadline) { return bytes(client.get(key, deadline)); });
}

std::int64_t TcpStoreAdapter::add(const std::string& key, std::int64_t value) {
  return talk([&](auto& client, auto deadline) { return client.add(key, value, deadline); });
}

bool TcpStoreAdapter::deleteKey(const std::string& key) {
  return talk([&](auto& client, auto deadline) { return client.erase(key, deadline); });
}

bool TcpStoreAdapter::check(const std::vector<std::string>& keys) {
  return talk([&](auto& client, auto deadline) { return client.contains(keys, deadline); });
}

std::int64_t TcpStoreAdapter::getNumKeys() {
  return talk([](auto& client, auto deadline) { return client.count(deadline); });
}

void TcpStoreAdapter::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void TcpStoreAdapter::wait(const std::vector<std::string>& keys, const Milliseconds& timeout) {
  if (!talk(timeout, [&](auto& client, auto deadline) { return client.wait(keys, deadline); })) {
    fail_late(keys, timeout);
  }
}

void TcpStoreAdapter::append(const std::string& key, const Bytes& value) {
  talk([&](auto& client, auto deadline) { client.append(key, text(value), deadline); });
}

std::vector<Bytes> TcpStoreAdapter::multiGet(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
  return talk([&](auto& client, auto deadline) {
    std::vector<Bytes> values;
    for (const auto& value : client.get_many(keys, deadline)) values.push_back(bytes(value));
    return values;
  });
}

void TcpStoreAdapter::multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) {
  std::vector<std::string> texts;
  for (const auto& value : values) texts.emplace_back(text(value));
  talk([&](auto& client, auto deadline) { client.set_many(keys, texts, deadline); });
}

void TcpStoreAdapter::queuePush(const std::string& queue, const Bytes& value) {
  talk([&](auto& client, auto deadline) { client.push(queue, text(value), deadline); });
}

Bytes TcpStoreAdapter::queuePop(const std::string& queue, bool block) {
  const auto deadline = deadline_of(timeout_);
  auto value = talk([&](auto& client, auto) {
    // Another client may be faster between the wait and the pop.
    auto popped = client.pop(queue, deadline);
    while (block && !popped && client.wait({queue}, deadline)) popped = client.pop(queue, deadline);
    return popped;
  });
  if (value) return bytes(*value);
  if (block) fail_late({queue}, timeout_);
  C10_THROW_ERROR(DistQueueEmptyError, "queue is empty");
}

std::int64_t TcpStoreAdapter::queueLen(const std::string& queue) {
  return talk([&](auto& client, auto deadline) { return client.length(queue, deadline); });
}

std::vector<std::string> TcpStoreAdapter::listKeys() {
  return talk([](auto& client, auto deadline) { return client.keys(deadline); });
}

}  // namespace lockstep::comm
