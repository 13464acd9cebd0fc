// A store as torchrun's agent hosts it, without the agent.

#include "torchrun_interop/torchrun_client.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>

#include "net/socket.hpp"
#include "net/store/server.hpp"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using net::Clock;

net::FileDescriptor listen_here() { return net::listen_at(*net::Address::numeric("127.0.0.1", 0)); }

TorchrunClient::Options job(int restarts, std::chrono::milliseconds backoff) {
  TorchrunClient::Options options;
  options.job.run_id = "job";
  options.job.max_restarts = restarts;
  options.job.restart_backoff = backoff;
  return options;
}

/// A node whose ranks do what the test says; the clock is moved by hand once they run.
struct StaticJob {
  StaticJob(int restarts, std::chrono::milliseconds backoff)
      : server(listen_here(), {}), coordinator(job(restarts, backoff), {server.address()}) {
    server.set("job/torchelastic/assigned_ranks/0", "[0, 2, 0, 2]");
    coordinator.send(NodeInfo{.run_id = "job", .host = "a"}, now);
    await<Assignment>();
  }

  void work() {
    for (auto& message : coordinator.work(now)) received.push_back(std::move(message));
  }
  template <class Message>
  int count() const {
    return static_cast<int>(std::count_if(received.begin(), received.end(), [](const auto& message) {
      return std::holds_alternative<Message>(message);
    }));
  }
  template <class Message>
  void await() {
    const auto limit = Clock::now() + 30s;
    while (count<Message>() == 0 && Clock::now() < limit) {
      work();
      usleep(1000);
    }
    ASSERT_EQ(count<Message>(), 1);
  }
  void fail(std::optional<std::uint64_t> step = std::nullopt) {
    now += 1s;
    ProcessFailure failure;
    failure.status = 1 << 8;
    coordinator.send(RoundEnded{.round = count<Assignment>(), .step = step, .failures = {failure}}, now);
    work();
  }
  void pass(std::chrono::milliseconds time) {
    now += time;
    work();
  }

  TorchrunClient::Time now = Clock::now() + 1h;
  std::vector<CoordinatorMessage> received;
  net::Server server;
  TorchrunClient coordinator;
};

TEST(TorchrunClient, RestartPausesDouble) {
  StaticJob job(2, 4s);
  job.fail();
  EXPECT_EQ(job.count<Assignment>(), 1);
  EXPECT_EQ(job.coordinator.deadline(), job.now + 4s);
  job.pass(4s);
  EXPECT_EQ(job.count<Assignment>(), 2);
  EXPECT_EQ(std::get<Assignment>(job.received.back()).restart_count, 1);
  job.fail();
  EXPECT_EQ(job.coordinator.deadline(), job.now + 8s);
  job.pass(8s);
  job.fail();
  EXPECT_EQ(job.count<Assignment>(), 3);
  EXPECT_EQ(job.count<Finish>(), 1) << "no restart is left";
}

TEST(TorchrunClient, RestartsAtOnceWithoutAPause) {
  StaticJob job(1, 0s);
  job.fail();
  EXPECT_EQ(job.count<Assignment>(), 2);
  EXPECT_EQ(job.coordinator.deadline(), TorchrunClient::Time::max());
}

TEST(TorchrunClient, GivesUpWithoutProgress) {
  StaticJob job(9, 1ms);
  for (int i = 0; i < 3; ++i) {
    job.fail(7);
    job.pass(1s);
  }
  EXPECT_EQ(job.count<Finish>(), 0) << "the first attempt was progress";
  job.fail(7);
  EXPECT_EQ(job.count<Finish>(), 1);
}

TEST(TorchrunClient, SignalEndsAPause) {
  StaticJob job(1, 20s);
  job.fail();
  job.coordinator.send(Draining{SIGINT}, job.now);
  job.work();
  ASSERT_EQ(job.count<Finish>(), 1);
  EXPECT_EQ(std::get<Finish>(job.received.back()).exit_code, 128 + SIGINT);
  job.pass(20s);
  EXPECT_EQ(job.count<Assignment>(), 1);
}

/// Greets as a store does, and says nothing after that.
class DumbStore {
 public:
  explicit DumbStore(bool greets) : listener_(listen_here()), greets_(greets), thread_([this] { serve(); }) {}
  ~DumbStore() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  net::Address address() const { return net::local_address(listener_.get()); }
  void await_client() const {
    const auto limit = Clock::now() + 30s;
    while (!greeted_ && Clock::now() < limit) usleep(1000);
    ASSERT_TRUE(greeted_);
  }

 private:
  void serve() {
    for (;;) {
      net::await_ready(listener_.get(), POLLIN, Clock::now() + 60s);
      net::FileDescriptor client(accept(listener_.get(), nullptr, nullptr));
      if (!client) return;
      char buffer[256];
      const ssize_t count = recv(client.get(), buffer, sizeof buffer, 0);
      if (greets_ && count >= 4) send(client.get(), buffer + count - 4, 4, MSG_NOSIGNAL);
      clients_.push_back(std::move(client));
      greeted_ = true;
    }
  }

  net::FileDescriptor listener_;
  bool greets_;
  std::vector<net::FileDescriptor> clients_;
  std::atomic<bool> greeted_ = false;
  std::thread thread_;
};

TEST(TorchrunClient, EndDoesNotWaitForASilentStore) {
  for (const bool greets : {false, true}) {
    const DumbStore store(greets);
    Clock::time_point begin;
    {
      TorchrunClient coordinator(job(0, 0s), {store.address()});
      coordinator.send(NodeInfo{.run_id = "job", .host = "a"}, Clock::now());
      store.await_client();
      usleep(100'000);
      begin = Clock::now();
    }
    // Its calls have 30 s; a connection that is not greeted is given up after two.
    EXPECT_LT(Clock::now() - begin, 20s) << greets;
  }
}

}  // namespace
}  // namespace lockstep::launch
