#include "comm/tcp_store_adapter.hpp"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <mutex>
#include <string>
#include <utility>

#include "coordination/interruption.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Keys = std::vector<std::string>;
using Milliseconds = std::chrono::milliseconds;
using Client = net::StoreClient;

std::string_view text(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
Bytes bytes(std::string_view text) { return {text.begin(), text.end()}; }

/// c10d treats a timeout of zero as infinite.
net::Deadline deadline_of(Milliseconds timeout) {
  constexpr std::chrono::hours kForEver{24 * 365};
  const bool bounded = timeout > Milliseconds(0) && timeout < kForEver;
  return net::Clock::now() + (bounded ? timeout : Milliseconds(kForEver));
}

/// Like C10_THROW_ERROR, but without the path of the source tree, which would be embedded in the library.
template <class Error>
[[noreturn]] void fail(const std::string& text) {
  throw Error({__func__, "tcp_store_adapter.cpp", __LINE__}, text);
}

[[noreturn]] void fail_late(const Keys& keys, Milliseconds timeout) {
  fail<c10::DistStoreError>(
      fmt::format("wait timeout after {}ms, keys: {}", timeout.count(), fmt::join(keys, ", ")));
}

class TcpStoreAdapter final : public c10d::Store {
  /// Calls `method` of the client under the lock and translates its errors to c10d's types.
  template <class Method, class... Arguments>
  auto call_until(net::Deadline deadline, Milliseconds timeout, Method method,
                  const Arguments&... arguments) {
    const std::lock_guard lock(mutex_);
    try {
      return (client_.*method)(arguments..., deadline);
    } catch (const TimeoutError& error) {
      fail<c10::DistStoreError>(fmt::format("store timeout after {} ms: {}", timeout.count(), error.what()));
    } catch (const CommunicationError& error) {
      fail<c10::DistNetworkError>(error.what());
    }
  }
  template <class Method, class... Arguments>
  auto call(Method method, const Arguments&... arguments) {
    return call_until(deadline_of(timeout_), timeout_, method, arguments...);
  }
  /// False at the deadline. In parts, if the calling thread's waits can be interrupted: who forms a group
  /// anew waits here, and in Gloo's code, for a rank that may be lost meanwhile.
  bool wait_until(net::Deadline deadline, Milliseconds timeout, const Keys& keys) {
    for (;;) {
      coordination::throw_if_interrupted();
      const auto look = net::Clock::now() + coordination::kInterruptionLook;
      const bool is_last = !coordination::is_interruptible() || deadline <= look;
      if (call_until(is_last ? deadline : look, timeout, &Client::wait, keys)) return true;
      if (is_last) return false;
    }
  }

 public:
  TcpStoreAdapter(std::vector<net::Address> addresses, net::StoreClientOptions options, Milliseconds timeout,
                  std::shared_ptr<net::Server> hosted)
      : Store(timeout),
        addresses_(std::move(addresses)),
        options_(std::move(options)),
        hosted_(std::move(hosted)),
        client_(addresses_, options_, deadline_of(timeout)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<TcpStoreAdapter>(addresses_, options_, timeout_, hosted_);
  }

  void set(const std::string& key, const Bytes& value) override { call(&Client::set, key, text(value)); }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    return bytes(call(&Client::compare_set, key, text(expected), text(desired)));
  }
  Bytes get(const std::string& key) override {
    if (coordination::is_interruptible()) wait({key}, timeout_);
    return bytes(call(&Client::get, key));
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    return call(&Client::add, key, value);
  }
  bool deleteKey(const std::string& key) override { return call(&Client::erase, key); }
  bool check(const Keys& keys) override { return call(&Client::contains, keys); }
  std::int64_t getNumKeys() override { return call(&Client::count); }
  void wait(const Keys& keys) override { wait(keys, timeout_); }
  void wait(const Keys& keys, const Milliseconds& timeout) override {
    if (!wait_until(deadline_of(timeout), timeout, keys)) fail_late(keys, timeout);
  }
  void append(const std::string& key, const Bytes& value) override {
    call(&Client::append, key, text(value));
  }
  std::vector<Bytes> multiGet(const Keys& keys) override {
    wait(keys, timeout_);
    std::vector<Bytes> values;
    for (const auto& value : call(&Client::get_many, keys)) values.push_back(bytes(value));
    return values;
  }
  void multiSet(const Keys& keys, const std::vector<Bytes>& values) override {
    std::vector<std::string> texts;
    for (const auto& value : values) texts.emplace_back(text(value));
    call(&Client::set_many, keys, texts);
  }
  bool hasExtendedApi() const override { return true; }
  void queuePush(const std::string& queue, const Bytes& value) override {
    call(&Client::push, queue, text(value));
  }
  Bytes queuePop(const std::string& queue, bool block) override;
  std::int64_t queueLen(const std::string& queue) override { return call(&Client::length, queue); }
  Keys listKeys() override { return call(&Client::keys); }

 private:
  const std::vector<net::Address> addresses_;
  const net::StoreClientOptions options_;
  const std::shared_ptr<net::Server> hosted_;
  std::mutex mutex_;
  net::StoreClient client_;
};

Bytes TcpStoreAdapter::queuePop(const std::string& queue, bool block) {
  const auto deadline = deadline_of(timeout_);
  const Keys waited_for{queue};
  // Another client may pop the value between the wait and the pop.
  auto value = call_until(deadline, timeout_, &Client::pop, queue);
  while (block && !value && wait_until(deadline, timeout_, waited_for))
    value = call_until(deadline, timeout_, &Client::pop, queue);
  if (value) return bytes(*value);
  if (block) fail_late(waited_for, timeout_);
  fail<c10::DistQueueEmptyError>("queue is empty");
}

}  // namespace

c10::intrusive_ptr<c10d::Store> make_tcp_store_adapter(std::vector<net::Address> addresses,
                                                       net::StoreClientOptions options,
                                                       std::chrono::milliseconds timeout,
                                                       std::shared_ptr<net::Server> hosted) {
  return c10::make_intrusive<TcpStoreAdapter>(std::move(addresses), std::move(options), timeout,
                                              std::move(hosted));
}

}  // namespace lockstep::comm
