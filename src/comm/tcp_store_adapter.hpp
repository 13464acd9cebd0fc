#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "net/store/client.hpp"
#include "net/store/server.hpp"

namespace lockstep::comm {

/// c10d's view of the job's store: a connection of our own to any server of TCPStore's protocol, be it ours
/// or PyTorch's. Unlike c10d's client it keeps to its deadlines against a server that says nothing, and
/// proves the job's secret.
///
/// Any thread may call any method; a call that waits holds the connection, as c10d's does. Failures are
/// c10d's: DistStoreError when the timeout passes, DistNetworkError when the connection is lost.
class TcpStoreAdapter final : public c10d::Store {
 public:
  /// Connects; throws net's errors. `hosted` is the server that this process runs for the others, if it does:
  /// it lives as long as the store and its clones.
  TcpStoreAdapter(std::vector<net::Address> addresses, net::StoreClientOptions options,
                  std::chrono::milliseconds timeout, std::shared_ptr<net::Server> hosted = nullptr);

  /// The same store over a connection of its own.
  c10::intrusive_ptr<c10d::Store> clone() override;

  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<std::uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }
  void queuePush(const std::string& queue, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> queuePop(const std::string& queue, bool block) override;
  std::int64_t queueLen(const std::string& queue) override;
  std::vector<std::string> listKeys() override;

 private:
  /// Runs `action(client, deadline)` under the lock, and gives its failures c10d's types.
  template <class Action>
  auto talk(const std::chrono::milliseconds& timeout, Action&& action);
  template <class Action>
  auto talk(Action&& action);

  std::vector<net::Address> addresses_;
  net::StoreClientOptions options_;
  std::shared_ptr<net::Server> hosted_;
  std::mutex mutex_;
  net::StoreClient client_;
};

}  // namespace lockstep::comm
