// What PyTorch's own tests of torchrun and of its agent ask for (test/distributed/launcher/test_run.py,
// test/distributed/elastic/), asked of `lockstep run` from outside.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <set>
#include <tuple>

#include "core/cpu_set.hpp"
#include "net/socket.hpp"
#include "unit/launch/launcher_process.hpp"

namespace lockstep::launch {
namespace {

using Words = std::vector<std::string>;

std::set<std::string> numbers_below(int count) {
  std::set<std::string> names;
  for (int i = 0; i < count; ++i) names.insert(std::to_string(i));
  return names;
}

/// A job whose ranks each touch a file with their number as its name.
class RestatedTorchrun : public ::testing::Test {
 protected:
  std::string touch() const { return ": > " + folder_.path() + "/$RANK"; }

  Words command(Words flags, const std::string& more = "") const {
    flags.insert(flags.begin(), "run");
    flags.insert(flags.end(), {"sh", "-c", touch() + more});
    return flags;
  }

  Finished run(const Words& flags, const Environment& variables = {}) const {
    return launch(command(flags), variables);
  }

  std::set<std::string> touched() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      names.insert(entry.path().filename());
    return names;
  }

  void expect_ranks(const Words& flags, int count, const Environment& variables = {}) const {
    const Finished result = run(flags, variables);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(touched(), numbers_below(count));
  }

  const ScratchFolder folder_;
};

const Words kUsual{"--nnodes=1", "--nproc-per-node=4", "--monitor-interval=1", "--start-method=spawn"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(RestatedTorchrun, UserScript) { expect_ranks(with(kUsual, {"--rdzv-id=123", "--no-python"}), 4); }

TEST_F(RestatedTorchrun, FlagsOfTheOldLauncher) {
  expect_ranks(with(kUsual, {"--master-addr=localhost", "--master-port=" + std::to_string(net::free_port()),
                             "--node-rank=0"}),
               4);
}

TEST_F(RestatedTorchrun, NoPythonAndModuleExcludeEachOther) {
  EXPECT_EQ(run(with(kUsual, {"--no-python", "--module"})).status, 2);
  EXPECT_EQ(touched(), std::set<std::string>{});
}

TEST_F(RestatedTorchrun, OneRankByDefault) { expect_ranks({"--nnodes=1", "--no-python"}, 1); }

TEST_F(RestatedTorchrun, AllFromVariables) {
  Environment variables{{"PET_NNODES", "1"},
                        {"PET_NPROC_PER_NODE", "4"},
                        {"PET_RDZV_ID", "7"},
                        {"PET_MONITOR_INTERVAL", "1"},
                        {"PET_START_METHOD", "spawn"},
                        {"PET_NO_PYTHON", "1"},
                        {"PET_MODULE", "1"}};
  EXPECT_EQ(run({}, variables).status, 2) << "a module without Python";
  variables["PET_MODULE"] = "0";
  expect_ranks({}, 4, variables);
}

TEST_F(RestatedTorchrun, AsManyRanksAsProcessors) {
  expect_ranks({"--nproc-per-node=auto"}, static_cast<int>(allowed_cpus().size()),
               {{"CUDA_VISIBLE_DEVICES", ""}});
}

TEST_F(RestatedTorchrun, UnknownNumbersOfRanks) {
  EXPECT_EQ(run({"--nproc-per-node=unknown"}).status, 2);
  EXPECT_EQ(touched(), std::set<std::string>{});
}

Words elastic_flags() {
  return {"--nnodes=1:2",
          "--nproc-per-node=4",
          "--rdzv-backend=c10d",
          "--rdzv-endpoint=localhost:" + std::to_string(net::free_port()),
          "--rdzv-id=" + std::to_string(getpid()),
          "--rdzv-conf='join_timeout=5,last_call_timeout=1,timeout=5'"};
}

TEST_F(RestatedTorchrun, AnElasticJobOfOneNode) { expect_ranks(elastic_flags(), 4); }

TEST_F(RestatedTorchrun, AnElasticJobThatFails) {
  const Finished result = launch(command(elastic_flags(), "; exit 9"));
  EXPECT_EQ(result.status, 9) << result.err;
}

TEST_F(RestatedTorchrun, TwoAgents) {
  Words flags = elastic_flags();
  flags[0] = "--nnodes=2";
  // A token tells the second agent that the first, which has the port, is of the same job.
  const Environment variables{{"LOCKSTEP_JOB_TOKEN", "0123456789abcdef0123456789abcdef"}};
  LauncherProcess first(command(flags), variables);
  LauncherProcess second(command(flags), variables);
  EXPECT_EQ(first.wait().status, 0);
  EXPECT_EQ(second.wait().status, 0);
  EXPECT_EQ(touched(), numbers_below(8));
}

TEST_F(RestatedTorchrun, Standalone) { expect_ranks({"--nproc-per-node=4", "--standalone"}, 4); }

TEST_F(RestatedTorchrun, RunPath) {
  const std::string script = folder_.write("script",
                                           "import os, sys\nopen(sys.argv[1] + os.environ['RANK'], 'w')\n"
                                           "assert __name__ == '__main__'\n");
  const Finished result = launch({"run", "--run-path", "--nproc-per-node=2", script, folder_.file("rank ")},
                                 {{"OMP_NUM_THREADS", "1"}});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(touched(), (std::set<std::string>{"script", "rank 0", "rank 1"}));
}

TEST_F(RestatedTorchrun, RanksKnowThatTheyWereLaunched) {
  EXPECT_EQ(launch({"run", "sh", "-c", "test -n \"$TORCHELASTIC_RUN_ID\""}).status, 0);
}

TEST_F(RestatedTorchrun, LogsHaveThePrefix) {
  const Finished result =
      launch(command(with(kUsual, {"--redirect=3", "--tee=3"}), "; echo creating; echo err >&2"),
             {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[rank${rank}]: "}, {"TMPDIR", folder_.path()}});
  for (const auto& rank : numbers_below(4)) {
    EXPECT_NE(result.out.find("[rank" + rank + "]: creating\n"), std::string::npos) << result.out;
    EXPECT_NE(result.err.find("[rank" + rank + "]: err\n"), std::string::npos) << result.err;
  }
}

// test/distributed/elastic/multiprocessing/api_test.py

TEST_F(RestatedTorchrun, ArgumentsAndVariablesArriveUnchanged) {
  const Finished result = launch(
      {"run", "sh", "-c", "printf '%s|' \"$@\" \"$OTHER\"", "sh", "a b", "", "--x=${y}"}, {{"OTHER", "v w"}});
  EXPECT_EQ(result.out, "a b||--x=${y}|v w|");
}

TEST_F(RestatedTorchrun, AnotherRankIsEndedWhenOneFails) {
  const Finished result =
      launch(command({"--nproc-per-node=2"}, "; [ $RANK = 0 ] || exit 3; exec sleep 1000"));
  EXPECT_EQ(result.status, 3);
  EXPECT_NE(result.err.find("rank 0 was killed by SIGTERM"), std::string::npos) << result.err;
}

TEST_F(RestatedTorchrun, AFatalSignalIsReported) {
  const Finished result =
      launch(command({"--nproc-per-node=2"}, "; [ $RANK = 1 ] || kill -SEGV $$; exec sleep 1000"));
  EXPECT_EQ(result.status, 128 + SIGSEGV);
  EXPECT_NE(result.err.find("FAILED: rank 0 "), std::string::npos) << result.err;
}

TEST_F(RestatedTorchrun, AProgramThatIsNotThere) {
  const Finished result = launch({"run", "--no-python", "does_not_exist.py"});
  EXPECT_EQ(result.status, 127);
}

// test/distributed/elastic/multiprocessing/tail_log_test.py

TEST_F(RestatedTorchrun, AllLinesOfAllRanksAreTailed) {
  const Finished result = launch({"run", "--nproc-per-node=4", "--tee=3", "sh", "-c",
                                  "i=0; while [ $i -lt 500 ]; do echo $i; echo $i >&2; i=$((i+1)); done"},
                                 {{"OMP_NUM_THREADS", "1"}});
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2000);
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 2000);
}

// test/distributed/elastic/multiprocessing/errors/api_test.py

TEST_F(RestatedTorchrun, TheFirstFailureIsTheRootCause) {
  const Finished result = launch(command(
      {"--nproc-per-node=3"}, "; [ $RANK = 2 ] && exit 5; trap 'exit 6' TERM; while :; do sleep 0.05; done"));
  EXPECT_EQ(result.status, 5);
  EXPECT_NE(result.err.find("FAILED: rank 2 "), std::string::npos) << result.err;
}

// test/distributed/elastic/agent/server/test/local_elastic_agent_test.py

TEST_F(RestatedTorchrun, RestartsUntilItSucceeds) {
  const Finished result = launch(command({"--nproc-per-node=2", "--max-restarts=2", "--restart-backoff=0"},
                                         "; [ $TORCHELASTIC_RESTART_COUNT = 2 ] || exit 1"));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("restart 2 of 2"), std::string::npos);
}

TEST_F(RestatedTorchrun, RolesAndNumbersOfRanksMayDiffer) {
  const std::string port = std::to_string(net::free_port());
  const auto flags = [&](const std::string& node, const std::string& ranks, const std::string& role) {
    return Words{"--nnodes=3",
                 "--node-rank=" + node,
                 "--master-addr=127.0.0.1",
                 "--master-port=" + port,
                 "--role=" + role,
                 "--nproc-per-node=" + ranks,
                 "--rdzv-id=" + std::to_string(getpid())};
  };
  const std::string note =
      "; echo $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $WORLD_SIZE > " +
      folder_.path() + "/$RANK";
  std::vector<std::unique_ptr<LauncherProcess>> agents;
  for (const auto& [node, ranks, role] :
       {std::tuple("0", "1", "master"), std::tuple("1", "2", "trainer"), std::tuple("2", "3", "trainer")}) {
    agents.push_back(std::make_unique<LauncherProcess>(command(flags(node, ranks, role), note)));
  }
  for (const auto& agent : agents) EXPECT_EQ(agent->wait().status, 0);
  EXPECT_EQ(touched(), numbers_below(6));
  EXPECT_EQ(read_file(folder_.file("0")), "master 0/1 0/1 6\n");
  EXPECT_EQ(read_file(folder_.file("2")), "trainer 1/5 1/2 6\n");
  EXPECT_EQ(read_file(folder_.file("5")), "trainer 4/5 2/3 6\n");
}

TEST_F(RestatedTorchrun, RanksMayEndAtDifferentTimes) {
  EXPECT_EQ(launch(command({"--nproc-per-node=3"}, "; sleep 0.$RANK")).status, 0);
  EXPECT_EQ(launch(command({"--nproc-per-node=3"}, "; sleep 0.$RANK; [ $RANK != 2 ] || exit 4")).status, 4);
}

}  // namespace
}  // namespace lockstep::launch
