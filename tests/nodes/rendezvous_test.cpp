#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "hosts_test.hpp"

namespace lockstep::launch {
namespace {

const std::string kTell =
    "echo rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, node $GROUP_RANK of "
    "$GROUP_WORLD_SIZE, "
    "role $ROLE_RANK of $ROLE_WORLD_SIZE, store $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_USE_AGENT_STORE";

TEST_F(Hosts, StaticJobUsesGivenNodeRanks) {
  make_hosts(3);
  std::vector<std::unique_ptr<LauncherProcess>> nodes;
  // Nodes 0, 1, 2 are on hosts 0, 2, 1, with one, three and two ranks.
  const Words ranks = {"1", "3", "2"};
  const std::vector<int> hosts = {0, 2, 1};
  for (int node = 0; node < 3; ++node)
    nodes.push_back(
        start(hosts[static_cast<std::size_t>(node)],
              static_job(node, "3", ranks[static_cast<std::size_t>(node)]) + Words{"sh", "-c", kTell}));
  std::string out;
  for (auto& node : nodes) {
    const Finished end = node->wait();
    EXPECT_EQ(end.status, 0) << end.err;
    out += end.out;
  }
  for (int rank = 0; rank < 6; ++rank) {
    const int node = rank == 0 ? 0 : rank < 4 ? 1 : 2;
    const int first = node == 0 ? 0 : node == 1 ? 1 : 4;
    const std::string number = std::to_string(rank);
    EXPECT_TRUE(has(out, "rank " + number + " of 6, local " + std::to_string(rank - first) + " of " +
                             ranks[static_cast<std::size_t>(node)] + ", node " + std::to_string(node) +
                             " of 3, role " + number + " of 6, store 10.77.0.1:29500 True\n"));
  }
}

TEST_F(Hosts, C10dJobFormsByItself) {
  make_hosts(2);
  auto first = start(0, c10d("2", "2") + Words{"sh", "-c", kTell});
  auto second = start(1, c10d("2", "2") + Words{"sh", "-c", kTell});
  const Finished a = first->wait();
  const Finished b = second->wait();
  EXPECT_EQ(a.status, 0) << a.err;
  EXPECT_EQ(b.status, 0) << b.err;
  EXPECT_TRUE(has(a.out, "rank 0 of 4, local 0 of 2, node 0 of 2, role 0 of 4, store node0:29400 True\n"));
  EXPECT_TRUE(
      has(b.out, "rank 3 of 4, local 1 of 2, node 1 of 2, role 3 of 4, store 10.77.0.1:29400 True\n"));
  EXPECT_TRUE(has(b.err, "2 nodes: node 0 = node0 (ranks 0-1), node 1 = node1 (ranks 2-3)"));
}

TEST_F(Hosts, NodesMayJoinInAnyOrder) {
  make_hosts(2);
  auto second = start(1, c10d("2") + Words{"true"});
  usleep(1'500'000);
  auto first = start(0, c10d("2") + Words{"true"});
  EXPECT_EQ(second->wait().status, 0);
  EXPECT_EQ(first->wait().status, 0);
}

/// As with two networks, or two families of addresses: each of the others may know another one.
TEST_F(Hosts, EachAddressOfTheEndpointReachesTheJob) {
  make_hosts(3);
  const auto knows = [&](const std::string& hosts) {
    const std::string file = folder().file("hosts of " + std::to_string(hosts.size()));
    std::ofstream(file) << hosts;
    return "mount --bind '" + file + "' /etc/hosts";
  };
  const auto in_host = [](const std::string& command) {
    return [command] {
      if (std::system(command.c_str()) != 0) _exit(125);
    };
  };
  const auto words = [](int node) {
    return Words{"--nnodes",         "3", "--node-rank", std::to_string(node), "--master-addr", "node0",
                 "--nproc-per-node", "1", "true"};
  };
  auto first = start(0, words(0), {},
                     in_host("ip addr add 10.77.0.101/24 dev eth0 && " +
                             knows("127.0.0.1 localhost\n10.77.0.1 node0\n10.77.0.101 node0\n")));
  auto second = start(1, words(1));
  auto third = start(2, words(2), {}, in_host(knows("127.0.0.1 localhost\n10.77.0.101 node0\n")));
  for (auto* node : {&first, &second, &third}) {
    const Finished end = (*node)->wait();
    EXPECT_EQ(end.status, 0) << end.err;
  }
}

TEST_F(Hosts, RolesAreNumberedSeparately) {
  make_hosts(2);
  auto first = start(0, c10d("2", "2") + Words{"--role", "a", "sh", "-c", kTell});
  auto second = start(1, c10d("2", "1") + Words{"--role", "b", "sh", "-c", kTell});
  EXPECT_TRUE(has(first->wait().out, "rank 1 of 3, local 1 of 2, node 0 of 2, role 1 of 2"));
  EXPECT_TRUE(has(second->wait().out, "rank 2 of 3, local 0 of 1, node 1 of 2, role 0 of 1"));
}

TEST_F(Hosts, AnotherSecretIsRefused) {
  make_hosts(2);
  auto first = start(0, c10d("1:2") + sleeper("2"), {{"LOCKSTEP_JOB_TOKEN", "one-secret-of-a-job"}});
  await_number(folder().file("pid"));
  auto second = start(1, c10d("1:2") + Words{"true"}, {{"LOCKSTEP_JOB_TOKEN", "another-secret-of-a-job"}});
  const Finished refused = second->wait();
  EXPECT_NE(refused.status, 0);
  EXPECT_TRUE(has(refused.err, "cannot join the job's coordinator at node0:29400"));
  const Finished undisturbed = first->wait();
  EXPECT_EQ(undisturbed.status, 0) << undisturbed.err;
}

TEST_F(Hosts, MissingSharedSecretIsExplained) {
  make_hosts(2);
  const ScratchFolder homes[2];
  Words job = c10d("2");
  job.back() = "join_timeout=8";
  auto first = start(0, job + Words{"true"}, {{"HOME", homes[0].path()}});
  EXPECT_TRUE(eventually([&] { return read_file(homes[0].file(".config/lockstep/key")).size() > 64; }));
  const Finished refused = start(1, job + Words{"true"}, {{"HOME", homes[1].path()}})->wait();
  EXPECT_EQ(refused.status, 1);
  for (const std::string& part : {std::string("cannot join the job's coordinator at node0:29400"),
                                  "this launcher uses the key in " + homes[1].path(),
                                  std::string("LOCKSTEP_JOB_TOKEN"), std::string("--no-job-secret")})
    EXPECT_TRUE(has(refused.err, part));
  const Finished waited = first->wait();
  EXPECT_EQ(waited.status, 1);
  const auto told =
      waited.err.find("lockstep run: refused a launcher from 10.77.0.2: it has a different secret");
  ASSERT_NE(told, std::string::npos) << waited.err;
  EXPECT_TRUE(
      has(waited.err.substr(told + 1), "  refused a launcher from 10.77.0.2: it has a different secret"));
  EXPECT_TRUE(has(waited.err, "this launcher uses the key in " + homes[0].path()));
  EXPECT_EQ(refused.err.find("Choose another port"), std::string::npos) << refused.err;
}

TEST_F(Hosts, TrustedHostsNeedNoSecret) {
  make_hosts(2);
  const ScratchFolder homes[2];
  std::vector<std::unique_ptr<LauncherProcess>> nodes;
  for (int i = 0; i < 2; ++i)
    nodes.push_back(start(i, c10d("2") + Words{"--no-job-secret", "true"}, {{"HOME", homes[i].path()}}));
  for (auto& node : nodes) {
    const Finished end = node->wait();
    EXPECT_EQ(end.status, 0) << end.err;
  }
}

TEST_F(Hosts, TwoJobsOnOneEndpointDoNotMerge) {
  make_hosts(1);
  auto first = start(0, c10d("1:2") + sleeper("4"));
  await_number(folder().file("pid"));
  const Finished second = start(0, c10d("1:2") + Words{"true"})->wait();
  EXPECT_EQ(second.status, 1);
  EXPECT_TRUE(has(second.err, "its ranks run 'true', those of the job here (host node0, process " +
                                  std::to_string(first->pid()) + ") run 'sh'"));
  EXPECT_TRUE(has(second.err, "Two jobs need two endpoints"));
  const Finished undisturbed = first->wait();
  EXPECT_EQ(undisturbed.status, 0) << undisturbed.err;
  EXPECT_EQ(undisturbed.err.find("came"), std::string::npos) << undisturbed.err;
}

TEST_F(Hosts, NodeThatNeverRanReportsItAndFails) {
  make_hosts(3);
  auto first = start(0, c10d("2") + sleeper("6"));
  auto second = start(1, c10d("2") + sleeper("6"));
  await_number(folder().file("pid"));
  const Finished spare = start(2, c10d("2") + sleeper("6"))->wait();
  EXPECT_EQ(spare.status, 1);
  EXPECT_TRUE(has(spare.err, "no rank of this node ran"));
  EXPECT_EQ(first->wait().status, 0);
  EXPECT_EQ(second->wait().status, 0);
}

TEST_F(Hosts, SeveralLaunchersOfOneJobMayShareAHost) {
  make_hosts(1);
  for (const Environment& token :
       {Environment{}, Environment{{"LOCKSTEP_JOB_TOKEN", "the-secret-of-this-job"}}}) {
    auto first = start(0, c10d("2") + Words{"sh", "-c", kTell}, token);
    auto second = start(0, c10d("2") + Words{"sh", "-c", kTell}, token);
    const std::string out = first->wait().out + second->wait().out;
    EXPECT_TRUE(has(out, "rank 0 of 2, local 0 of 1, node 0 of 2"));
    EXPECT_TRUE(has(out, "rank 1 of 2, local 0 of 1, node 1 of 2"));
  }
}

TEST_F(Hosts, LaunchersOnOneHostRestartTogether) {
  make_hosts(1);
  const Words job =
      c10d("1:2") + Words{"--max-restarts",
                          "1",
                          "--restart-backoff",
                          "0",
                          "sh",
                          "-c",
                          "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 1 ] && exit 3; "
                          "sleep 100"};
  auto first = start(0, job);
  auto second = start(0, job);
  for (auto* node : {&first, &second}) {
    const Finished end = (*node)->wait();
    EXPECT_EQ(end.status, 0) << end.err;
    EXPECT_TRUE(has(end.err, "restart 1 of 1"));
  }
}

TEST_F(Hosts, AnotherProgramAtTheEndpointIsAnError) {
  make_hosts(1);
  auto other =
      start(0, Words{"--master-addr", Network::address(0), "--master-port", "29400"} + sleeper("100"));
  await_number(folder().file("pid"));
  const Finished end = start(0, c10d("2") + Words{"true"})->wait();
  EXPECT_EQ(end.status, 1);
  EXPECT_TRUE(has(end.err, "process " + std::to_string(other->pid())));
  EXPECT_TRUE(has(end.err, "Address already in use"));
  other->signal(SIGTERM);
  EXPECT_EQ(other->wait().status, 128 + SIGTERM);
}

TEST_F(Hosts, WaitingJobSaysWhereItWaitsAndWhatToRun) {
  make_hosts(1);
  const Finished end = start(0, static_job(0) + Words{"--rdzv-conf", "timeout=2", "true"})->wait();
  EXPECT_EQ(end.status, 1);
  EXPECT_TRUE(has(end.err,
                  "1 node of 2 joined (node0); missing: node 1. This node waits at 10.77.0.1:29500; run on "
                  "the "
                  "others: lockstep run --nnodes 2 --node-rank N --master-addr 10.77.0.1 --master-port 29500 "
                  "... true (--rdzv-conf timeout)"));
}

TEST_F(Hosts, HostThatIsNotTheMasterMustGiveItsOwnNodeRank) {
  make_hosts(2);
  const Words waits{"--rdzv-conf", "timeout=2", "true"};
  const Finished end = start(1, static_job(0) + waits)->wait();
  EXPECT_EQ(end.status, 1);
  EXPECT_TRUE(
      has(end.err,
          "This node (node1) has --node-rank 0 and so hosts the job, on port 29500, but --master-addr "
          "10.77.0.1 is not an address of this host. If another host is node 0, give this one its own "
          "--node-rank; run on the others"));
  // Two on one host: the one that comes second cannot listen.
  const Words both = static_job(0) + Words{"--rdzv-conf", "timeout=5", "true"};
  auto one = start(0, both), other = start(0, both);
  EXPECT_TRUE(has(one->wait().err + other->wait().err,
                  "If it is node 0 of this job, give this launcher its own --node-rank."));
}

TEST_F(Hosts, RankZeroServesTheStoreIfTheLaunchersIsOff) {
  make_hosts(2);
  const Environment off = {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}};
  auto first = start(
      0, c10d("2") + Words{"sh", "-c", "echo $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_USE_AGENT_STORE"}, off);
  auto second = start(
      1, c10d("2") + Words{"sh", "-c", "echo $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_USE_AGENT_STORE"}, off);
  const std::string out = first->wait().out;
  EXPECT_EQ(out, second->wait().out);
  EXPECT_TRUE(out.starts_with("node0:")) << out;
  EXPECT_TRUE(out.ends_with(" False\n")) << out;
  EXPECT_FALSE(out.starts_with("node0:29400 ")) << out;
}

/// The resolver answers after a minute, and says when.
TEST_F(Hosts, SignalIsHandledDuringNameLookup) {
  make_hosts(1);
  const std::string asked = folder().file("asked"), answered = folder().file("answered");
  const Environment slow = {{"LD_PRELOAD", LOCKSTEP_SLOW_RESOLVER},
                            {"SLOW_RESOLVER_ASKED", asked},
                            {"SLOW_RESOLVER_ANSWERED", answered}};
  for (const char* is_host : {"is_host=0", "is_host=1", "join_timeout=30"}) {
    auto launcher = start(0,
                          {"--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "slow-host:29400",
                           "--rdzv-conf", is_host, "true"},
                          slow);
    EXPECT_TRUE(eventually([&] { return access(asked.c_str(), F_OK) == 0; }));
    launcher->signal(SIGTERM);
    EXPECT_EQ(launcher->wait().status, 128 + SIGTERM) << is_host;
    EXPECT_NE(access(answered.c_str(), F_OK), 0) << is_host;
    unlink(asked.c_str());
  }
}

class LateNames : public Hosts {
 protected:
  /// Starts a launcher on each host, waits until all say that they wait for the name, and lets it resolve.
  std::vector<Finished> ends_of(const std::vector<Words>& jobs) {
    make_hosts(static_cast<int>(jobs.size()));
    const std::string file = folder().file("late");
    const Environment late = {{"LD_PRELOAD", LOCKSTEP_SLOW_RESOLVER}, {"LATE_RESOLVER_FILE", file}};
    std::vector<std::unique_ptr<LauncherProcess>> nodes;
    for (std::size_t i = 0; i < jobs.size(); ++i) nodes.push_back(start(static_cast<int>(i), jobs[i], late));
    for (const auto& node : nodes) {
      EXPECT_TRUE(eventually([&] {
        return node->err().find("cannot resolve 'late-host'") != std::string::npos;
      })) << node->err();
    }
    folder().write("late", Network::address(0));
    std::vector<Finished> ends;
    for (const auto& node : nodes) ends.push_back(node->wait());
    return ends;
  }
};

TEST_F(LateNames, StaticJobWaitsForTheNameOfNodeZero) {
  const auto job = [](const char* node) {
    return Words{"--nnodes", "2", "--node-rank", node, "--master-addr", "late-host", "sh", "-c", kTell};
  };
  const auto ends = ends_of({job("0"), job("1")});
  for (const Finished& end : ends) EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_TRUE(has(ends[1].out, "rank 1 of 2"));
}

/// Neither knows at first whether it is the endpoint.
TEST_F(LateNames, NodeHostsAC10dJobOnceTheNameResolvesToItself) {
  const Words job{"--nnodes", "2",  "--rdzv-backend", "c10d", "--rdzv-endpoint", "late-host:29400", "sh",
                  "-c",       kTell};
  for (const Finished& end : ends_of({job, job})) EXPECT_EQ(end.status, 0) << end.err;
}

TEST_F(LateNames, JobOfOneNodeWaitsToo) {
  const auto ends = ends_of({Words{"--nnodes", "1", "--master-addr", "late-host", "sh", "-c", kTell}});
  EXPECT_EQ(ends[0].status, 0) << ends[0].err;
}

TEST_F(LateNames, JoinTimeoutEndsTheWait) {
  make_hosts(1);
  const auto begin = std::chrono::steady_clock::now();
  const Finished end = start(0,
                             {"--nnodes", "2", "--node-rank", "1", "--master-addr", "late-host",
                              "--rdzv-conf", "timeout=3", "true"},
                             {{"LD_PRELOAD", LOCKSTEP_SLOW_RESOLVER}})
                           ->wait();
  EXPECT_EQ(end.status, 1);
  EXPECT_TRUE(has(end.err, "not reached within 3 s: cannot resolve 'late-host'"));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST_F(Hosts, LoopbackEndpointIsReportedAsUnreachableForOthers) {
  make_hosts(1);
  const Finished end =
      start(0, {"--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-conf", "join_timeout=1", "true"})->wait();
  EXPECT_EQ(end.status, 1);
  EXPECT_TRUE(
      has(end.err, "launchers on other hosts cannot reach it. Give all of them --rdzv-endpoint with"));
}

TEST_F(Hosts, ContradictionsAreReportedOnBothSides) {
  make_hosts(2);
  auto first = start(0, c10d("1:2") + Words{"--rdzv-id", "here"} + sleeper("4"));
  await_number(folder().file("pid"));
  const Finished other_id =
      start(1, c10d("1:2") + Words{"--rdzv-id", "there", "true"}, {{"LOCKSTEP_JOB_TOKEN", ""}})->wait();
  EXPECT_EQ(other_id.status, 1);
  const Finished other_size = start(1, c10d("2") + Words{"--rdzv-id", "here", "true"})->wait();
  EXPECT_EQ(other_size.status, 1);
  EXPECT_TRUE(has(other_size.err, "its --nnodes is 2, that of the job here is 1:2"));
  EXPECT_EQ(first->wait().status, 0);

  auto zero = start(0, static_job(0, "3") + Words{"--rdzv-conf", "timeout=5", "true"});
  auto one = start(1, static_job(1, "3") + Words{"--rdzv-conf", "timeout=20", "true"});
  usleep(1'000'000);
  const Finished again = start(1, static_job(1, "3") + Words{"true"})->wait();
  EXPECT_EQ(again.status, 1);
  EXPECT_TRUE(has(again.err, "--node-rank 1 is taken by host node1, process " + std::to_string(one->pid())));
  const Finished missing = zero->wait();
  EXPECT_EQ(missing.status, 1);
  EXPECT_TRUE(has(missing.err, "2 nodes of 3 joined (node0, node1); missing: node 2"));
  EXPECT_EQ(one->wait().status, 1);
}

TEST_F(Hosts, UnreachableEndpointIsNamed) {
  make_hosts(2);
  const Words job = {"--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-conf", "join_timeout=2"};
  const Finished nobody = start(1, job + Words{"--rdzv-endpoint", "node0:29400", "true"})->wait();
  EXPECT_EQ(nobody.status, 1);
  EXPECT_TRUE(has(nobody.err, "10.77.0.1:29400"));
  network().cut(0);
  const Finished silent = start(1, job + Words{"--rdzv-endpoint", "node0:29400", "true"})->wait();
  EXPECT_EQ(silent.status, 1);
  EXPECT_TRUE(has(silent.err, "10.77.0.1:29400"));
  const Finished unknown = start(1, job + Words{"--rdzv-conf", "join_timeout=2,is_host=0", "--rdzv-endpoint",
                                                "no-such-host:1", "true"})
                               ->wait();
  EXPECT_EQ(unknown.status, 1);
  EXPECT_TRUE(has(unknown.err, "no-such-host"));
}

TEST_F(Hosts, ProgramMissingOnOneNodeIsTheCauseOnAllNodes) {
  make_hosts(2);
  auto first = start(0, c10d("2") + Words{"sleep", "60"});
  auto second = start(1, c10d("2") + Words{"/no/such/sleep", "60"});
  for (auto* node : {&first, &second}) {
    const Finished end = (*node)->wait();
    EXPECT_EQ(end.status, 127) << end.err;
    EXPECT_TRUE(has(end.err, "FAILED: rank 1 (node 1, host node1"));
    EXPECT_TRUE(has(end.err, "/no/such/sleep"));
  }
}

}  // namespace
}  // namespace lockstep::launch
