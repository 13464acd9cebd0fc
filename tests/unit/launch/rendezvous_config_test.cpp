#include <gtest/gtest.h>

#include <csignal>

#include "config/launch_config.hpp"
#include "config/rendezvous_config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

using Words = std::vector<std::string>;

LaunchConfig plan(Words words, const Environment& environment = {}) {
  words.push_back("program");
  return make_config(run_option_table().parse(words, environment), environment);
}

std::string refusal(const Words& words) {
  try {
    plan(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "the words were accepted";
  return "";
}

TEST(RendezvousConfig, OneNodeNeedsNoOther) {
  for (const Words& words : {Words{},
                             {"--nnodes=1"},
                             {"--nnodes=1:1", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"},
                             {"--standalone", "--rdzv-backend=etcd"},
                             {"--master-addr=host", "--master-port=1234"}}) {
    EXPECT_EQ(plan(words).backend, Backend::alone);
    EXPECT_EQ(plan(words).max_nodes, 1);
  }
}

TEST(RendezvousConfig, NumbersOfNodes) {
  EXPECT_EQ(parse_nodes("3"), std::pair(3, 3));
  EXPECT_EQ(parse_nodes("2:5"), std::pair(2, 5));
  for (const auto* text :
       {"0", "-1", "x", "", "2:1", "0:2", "1:", ":1", "1:2:3", "1.5", " 1", "99999999999"}) {
    EXPECT_NE(refusal({std::string("--nnodes=") + text}).find("--nnodes '"), std::string::npos) << text;
  }
}

TEST(RendezvousConfig, StaticNodesMeetAtTheMaster) {
  const LaunchConfig job = plan({"--nnodes=1:2", "--node-rank=1", "--master-addr=[::1]", "--master-port=77"});
  EXPECT_EQ(job.backend, Backend::static_);
  EXPECT_EQ(job.min_nodes, 1);
  EXPECT_EQ(job.max_nodes, 2);
  EXPECT_EQ(job.node_rank, 1);
  EXPECT_EQ(job.endpoint.host, "::1");
  EXPECT_EQ(job.endpoint.port, 77);
  EXPECT_EQ(plan({"--nnodes=2"}).node_rank, 0);
  EXPECT_EQ(plan({"--nnodes=2"}).endpoint.host, "127.0.0.1");
  EXPECT_EQ(plan({"--nnodes=2"}).endpoint.port, 29500);
  EXPECT_EQ(plan({"--nnodes=2", "--rdzv-endpoint=h"}).endpoint.port, 29500);
  EXPECT_NE(refusal({"--nnodes=2", "--master-port=0"}).find("port 0"), std::string::npos);
  EXPECT_NE(refusal({"--nnodes=2", "--node-rank=2"}).find("--node-rank '2'"), std::string::npos);
  EXPECT_NE(refusal({"--node-rank=1"}).find("--node-rank '1'"), std::string::npos);
}

TEST(RendezvousConfig, C10dNodesMeetAtTheEndpoint) {
  const LaunchConfig job =
      plan({"--nnodes=2:4", "--rdzv-backend=c10d", "--rdzv-endpoint=head:1234", "--local-addr=10.0.0.7"});
  EXPECT_EQ(job.backend, Backend::c10d);
  EXPECT_EQ(job.endpoint.host, "head");
  EXPECT_EQ(job.endpoint.port, 1234);
  EXPECT_EQ(job.options.local_addr, "10.0.0.7");
  EXPECT_EQ(job.node_rank, std::nullopt);
  EXPECT_EQ(plan({"--nnodes=2", "--rdzv-backend=c10d", "--node-rank=1"}).node_rank, 1);
  EXPECT_EQ(plan({"--nnodes=2", "--rdzv-backend=c10d"}).endpoint.host, "localhost");
  EXPECT_EQ(plan({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h"}).endpoint.port, 29400);
}

TEST(RendezvousConfig, SlurmKnowsTheRest) {
  EXPECT_EQ(plan({"--rdzv-backend=slurm"}).backend, Backend::slurm);
  EXPECT_EQ(plan({"--rdzv-backend=slurm"}).endpoint.host, "");
  EXPECT_EQ(plan({"--rdzv-backend=slurm", "--rdzv-endpoint=h"}).endpoint.host, "h");
  EXPECT_EQ(plan({"--rdzv-backend=slurm", "--rdzv-endpoint=h"}).endpoint.port, 0);
}

TEST(RendezvousConfig, ASlurmStepHasTheNodesUnlessTheyAreGiven) {
  const Environment step{{"SLURM_JOB_ID", "12"},
                         {"SLURM_STEP_ID", "1"},
                         {"SLURM_STEP_NUM_TASKS", "2"},
                         {"SLURM_NTASKS", "2"},
                         {"SLURM_STEP_NODELIST", "n[1-2]"},
                         {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                         {"SLURM_PROCID", "1"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_GTIDS", "1"}};
  const auto completed = [&](Words words) {
    words.push_back("program");
    const auto parsed = run_option_table().parse(words, step);
    LaunchConfig config = make_config(parsed, step);
    complete_from_slurm(parsed, step, config);
    return config;
  };
  EXPECT_EQ(completed({"--rdzv-backend=slurm"}).min_nodes, 2);
  EXPECT_EQ(completed({"--rdzv-backend=slurm"}).node_rank, 1);
  EXPECT_EQ(completed({"--rdzv-backend=slurm", "--nnodes=1:4"}).min_nodes, 1);
  EXPECT_EQ(completed({"--rdzv-backend=slurm", "--nnodes=1:4"}).max_nodes, 2);
  EXPECT_EQ(completed({"--rdzv-backend=slurm"}).endpoint.host, "n1");
  EXPECT_EQ(completed({"--rdzv-backend=slurm", "--master-addr=n1-ib"}).endpoint.host, "n1-ib");
  EXPECT_EQ(completed({"--rdzv-backend=slurm", "--master-addr=n9", "--rdzv-endpoint=n1:1"}).endpoint.text(),
            "n1:1");
  EXPECT_THROW(completed({"--rdzv-backend=slurm", "--master-addr=n2"}), UsageError);
  EXPECT_THROW(completed({"--rdzv-backend=slurm", "--nnodes=3"}), UsageError);
  EXPECT_THROW(completed({"--rdzv-backend=slurm", "--nnodes=1"}), UsageError);
}

TEST(RendezvousConfig, SeveralLaunchersOnANodeOfASlurmStepAreReported) {
  const Environment step{{"SLURM_JOB_ID", "12"},
                         {"SLURM_STEP_ID", "1"},
                         {"SLURM_STEP_NUM_TASKS", "4"},
                         {"SLURM_NTASKS", "4"},
                         {"SLURM_STEP_NODELIST", "n[1-2]"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                         {"SLURM_PROCID", "1"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_NODEID", "0"},
                         {"SLURM_GTIDS", "0,1"}};
  const auto notices = [&](Words words) {
    words.push_back("program");
    const auto parsed = run_option_table().parse(words, step);
    LaunchConfig config = make_config(parsed, step);
    const std::size_t before = config.notices.size();
    complete_from_slurm(parsed, step, config);
    return Words(config.notices.begin() + static_cast<std::ptrdiff_t>(before), config.notices.end());
  };
  const Words told = notices({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=n1:29500"});
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told.front().find("this Slurm step has 2 tasks on node n1, 4 in all, for a job of 2 nodes"),
            std::string::npos)
      << told.front();
  EXPECT_TRUE(notices({"--nnodes=4", "--node-rank=1", "--master-addr=n1"}).empty()) << "a node for each task";
  EXPECT_TRUE(notices({"--standalone"}).empty());
}

TEST(RendezvousConfig, OtherBackendsAreRefusedByName) {
  for (const std::string name : {"etcd", "etcd-v2"}) {
    const std::string text = refusal({"--rdzv-backend=" + name});
    EXPECT_NE(text.find("--rdzv-backend '" + name + "': expected"), std::string::npos) << text;
    EXPECT_NE(text.find("use c10d"), std::string::npos) << text;
  }
  EXPECT_NE(refusal({"--rdzv-backend=zeus"}).find("'zeus'"), std::string::npos);
  EXPECT_NE(refusal({"--standalone", "--nnodes=2"}).find("contradict"), std::string::npos);
}

TEST(RendezvousConf, SaysHowLongNodesWait) {
  const auto times =
      plan({"--rdzv-conf=join_timeout=5, last_call_timeout = 1.5,timeout=7,keep_alive_max_attempt=9,"
            "close_timeout=2,keep_alive_interval=4"})
          .times;
  using std::chrono::milliseconds;
  EXPECT_EQ(times.join_timeout, milliseconds(5000));
  EXPECT_EQ(times.last_call_timeout, milliseconds(1500));
  EXPECT_EQ(times.timeout, milliseconds(7000));
  EXPECT_EQ(times.close_timeout, milliseconds(2000));
  EXPECT_EQ(times.keep_alive_interval, milliseconds(4000));
  EXPECT_EQ(times.keep_alive_max_attempt, 9);
}

TEST(RendezvousConf, SaysWhoIsHost) {
  EXPECT_EQ(plan({}).is_host, std::nullopt);
  EXPECT_EQ(plan({"--rdzv-conf=is_host=True"}).is_host, true);
  EXPECT_EQ(plan({"--rdzv-conf=is_host=0"}).is_host, false);
}

TEST(RendezvousConf, UnknownKeysAreReportedAndQuotesAreDropped) {
  const LaunchConfig job = plan({"--rdzv-conf='join_timeout=5,colour=red,rank=3,store_type=tcp'"});
  EXPECT_EQ(job.times.join_timeout, std::chrono::seconds(5));
  ASSERT_EQ(job.notices.size(), 2U);
  EXPECT_NE(job.notices[0].find("'colour'"), std::string::npos);
  EXPECT_NE(job.notices[1].find("--node-rank"), std::string::npos);
}

TEST(RendezvousConf, TorchrunsTimesOfSingleAnswersAreCheckedAndNotNeeded) {
  const LaunchConfig job = plan({"--rdzv-conf=read_timeout=60,heartbeat_timeout=5"});
  ASSERT_EQ(job.notices.size(), 2U);
  EXPECT_NE(job.notices[0].find("'read_timeout' has no effect"), std::string::npos);
  EXPECT_NE(job.notices[1].find("'heartbeat_timeout' has no effect"), std::string::npos);
  EXPECT_NE(refusal({"--rdzv-conf=read_timeout=soon"}).find("read_timeout=soon"), std::string::npos);
}

TEST(RendezvousConf, BrokenItemsAreNamed) {
  for (const std::string text : {"x", "x=", "=1", "a=1,,b=2", "a=1,", "join_timeout=-1", "join_timeout=soon",
                                 "join_timeout=1e99", "is_host=maybe", "store_type=file", ","}) {
    EXPECT_NE(refusal({"--rdzv-conf=" + text}).find("--rdzv-conf '"), std::string::npos) << text;
  }
}

TEST(EndSignals, AreTheListed) {
  EXPECT_EQ(plan({}).end_signals, (std::vector<int>{SIGTERM, SIGINT, SIGHUP, SIGQUIT}));
  EXPECT_EQ(plan({"--signals-to-handle=SIGUSR1, SIGTERM,SIGUSR1"}).end_signals,
            (std::vector<int>{SIGUSR1, SIGTERM}));
  EXPECT_EQ(plan({"--signals-to-handle="}).end_signals, std::vector<int>{});
  const LaunchConfig job = plan({"--signals-to-handle=SIGTERM,SIGNOPE,TERM"});
  EXPECT_EQ(job.end_signals, std::vector<int>{SIGTERM});
  ASSERT_EQ(job.notices.size(), 2U);
  EXPECT_NE(job.notices[0].find("'SIGNOPE'"), std::string::npos);
  for (const auto* name : {"SIGKILL", "SIGSTOP", "SIGCHLD"}) {
    EXPECT_NE(refusal({std::string("--signals-to-handle=") + name}).find(name), std::string::npos);
  }
}

TEST(ShutdownTimeout, HasAVariableOfTorchruns) {
  const auto milliseconds = [](const Words& words, const Environment& environment) {
    return plan(words, environment).shutdown_timeout.count();
  };
  EXPECT_EQ(milliseconds({}, {}), 30'000);
  EXPECT_EQ(milliseconds({}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "12"}}), 12'000);
  EXPECT_EQ(milliseconds({"--shutdown-timeout=1"}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "12"}}), 1'000);
  EXPECT_THROW(plan({}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "soon"}}), UsageError);
}

}  // namespace
}  // namespace lockstep::launch
