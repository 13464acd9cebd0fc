#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "network.hpp"
#include "unit/launch/launcher_process.hpp"

namespace lockstep::launch {

using Words = std::vector<std::string>;

/// Tests with launchers on several hosts of one network. Skipped only where this process may not make hosts.
class Hosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Network::possible())
      GTEST_SKIP() << "hosts of their own namespaces need root (CAP_SYS_ADMIN, CAP_NET_ADMIN)";
  }

  void make_hosts(int count) { network_ = std::make_unique<Network>(count); }
  const Network& network() const { return *network_; }

  /// A launcher on that host; `words` are its arguments after "run". Its home is the test's own, so that no
  /// key of the user's is touched. `in_child` runs there before it begins.
  std::unique_ptr<LauncherProcess> start(int host, Words words, Environment variables = {},
                                         const std::function<void()>& in_child = {}) {
    words.insert(words.begin(), "run");
    variables.emplace("HOME", folder_.path());
    return std::make_unique<LauncherProcess>(words, variables, [&] {
      network_->enter(host)();
      if (in_child) in_child();
    });
  }

  /// The options of a job of `nodes` ("2", "1:2") that meets on host 0. `sign_of_life`: the seconds between
  /// two; three missing ones are a loss. Short ones are for tests that wait for a loss.
  Words c10d(const std::string& nodes, const std::string& ranks = "1", int sign_of_life = 5) const {
    return {"--nnodes",
            nodes,
            "--nproc-per-node",
            ranks,
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            "node0:29400",
            "--rdzv-conf",
            "last_call_timeout=1,join_timeout=30,keep_alive_interval=" + std::to_string(sign_of_life)};
  }
  Words static_job(int node, const std::string& nodes = "2", const std::string& ranks = "1") const {
    return {"--nnodes",           nodes,           "--nproc-per-node", ranks, "--node-rank",
            std::to_string(node), "--master-addr", Network::address(0)};
  }

  /// A program that writes its pid into the file "pid" and then sleeps.
  Words sleeper(const std::string& seconds) const {
    const std::string file = folder_.file("pid");
    return {"sh", "-c",
            "echo $$ > " + file + ".new; mv " + file + ".new " + file + "; exec sleep " + seconds};
  }

  const ScratchFolder& folder() const { return folder_; }

 private:
  ScratchFolder folder_;
  std::unique_ptr<Network> network_;
};

inline Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

/// Whether the text has the part; the whole text is shown when it has not.
inline ::testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << part << "' is not in:\n" << text;
}

}  // namespace lockstep::launch
