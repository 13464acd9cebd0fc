#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/worker_spec.hpp"
#include "config/devices.hpp"
#include "config/launch_config.hpp"
#include "config/rendezvous_config.hpp"
#include "launcher_process.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/world.hpp"
#include "net/socket.hpp"

namespace lockstep::launch {
namespace {

LaunchConfig plan(const std::vector<std::string>& words, const Environment& environment = {}) {
  return make_config(run_option_table().parse(words, environment), environment);
}

std::string refusal(const std::vector<std::string>& words, const Environment& environment = {}) {
  try {
    plan(words, environment);
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "the words were accepted";
  return "";
}

using Words = std::vector<std::string>;

TEST(LaunchConfig, ScriptsAndModulesGoToPython) {
  EXPECT_EQ(plan({"train.py", "-x"}).command, (Words{"python3", "-u", "train.py", "-x"}));
  EXPECT_EQ(plan({"-m", "pkg.train", "-x"}).command, (Words{"python3", "-u", "-m", "pkg.train", "-x"}));
  EXPECT_EQ(plan({"train.py"}, {{"PYTHON_EXEC", "/opt/python"}}).command.front(), "/opt/python");
  EXPECT_EQ(plan({"--no-python", "train.py"}).command, Words{"train.py"});
  EXPECT_EQ(plan({"./train", "a.py"}).command, (Words{"./train", "a.py"}));
  EXPECT_NE(refusal({"-m", "--no-python", "x"}).find("contradict"), std::string::npos);
}

TEST(LaunchConfig, RunPathGoesToRunpy) {
  const LaunchConfig job = plan({"--run-path", "--no-python", "script", "a"});
  ASSERT_EQ(job.command.size(), 6U);
  EXPECT_NE(job.command[3].find("runpy.run_path"), std::string::npos);
  EXPECT_EQ(job.command[4], "script");
  EXPECT_EQ(worker_command(job, 0), job.command);
}

/// torchrun's launcher sees an interpreter, whose arguments have the script's or the module's name.
TEST(LaunchConfig, TheLocalRankIsReplacedInArgumentsAndInWhatPythonRuns) {
  EXPECT_EQ(worker_command(plan({"train_${local_rank}.py", "$local_rank"}), 3),
            (Words{"python3", "-u", "train_3.py", "3"}));
  EXPECT_EQ(worker_command(plan({"-m", "job.rank$local_rank"}), 1),
            (Words{"python3", "-u", "-m", "job.rank1"}));
  EXPECT_EQ(worker_command(plan({"./rank${local_rank}", "${local_rank}"}), 1),
            (Words{"./rank${local_rank}", "1"}));
}

TEST(LaunchConfig, BlanksAroundNumbersAndEmptyVariablesAreAcceptedAsByTorchrun) {
  const LaunchConfig job = plan({"--local-ranks-filter", "0, 1", "p"}, {{"PET_NNODES", " 1:1 "},
                                                                        {"PET_NPROC_PER_NODE", " 3\n"},
                                                                        {"PET_MAX_RESTARTS", " 2 "},
                                                                        {"PET_NO_PYTHON", " 1 "},
                                                                        {"PET_LOG_DIR", ""},
                                                                        {"PET_ROLE", ""}});
  EXPECT_EQ(job.local_world_size, 3);
  EXPECT_EQ(job.options.max_restarts, 2);
  EXPECT_TRUE(job.options.no_python);
  EXPECT_EQ(job.options.log_dir, std::nullopt);
  EXPECT_EQ(job.options.role, "default");
  EXPECT_EQ(job.outputs[1].out, Sink::console);
  EXPECT_EQ(job.outputs[2].out, Sink::nothing);
  EXPECT_EQ(plan({"p"}, {{"PET_DUPLICATE_STDOUT_FILTERS", " a,b "}}).options.duplicate_stdout_filters,
            (Words{" a", "b "}));
}

TEST(LaunchConfig, WithoutUseEnvTheLocalRankIsAnArgument) {
  EXPECT_EQ(worker_command(plan({"--no-use-env", "--no-python", "p", "a"}), 3),
            (Words{"p", "--local-rank=3", "a"}));
}

TEST(LaunchConfig, OwnFlagsMakeNoPrefixAmbiguous) {
  EXPECT_EQ(plan({"--log-d=x", "--red=1", "--te=1", "--ro=a", "p"}).outputs.front().out, Sink::forward);
  EXPECT_NE(refusal({"--torchrun-exit", "p"}).find("unknown flag"), std::string::npos);
}

TEST(LaunchConfig, TheProgramsFlagsAreItsOwn) {
  EXPECT_EQ(plan({"--nproc_per_node=2", "prog", "--nproc-per-node", "3", "--", "-h"}).command,
            (Words{"prog", "--nproc-per-node", "3", "--", "-h"}));
  EXPECT_EQ(plan({"--", "prog", "--"}).command, (Words{"prog", "--"}));
}

TEST(LaunchConfig, AddressesHaveTorchrunsDefaults) {
  EXPECT_EQ(plan({"p"}).endpoint.port, 0) << "a free port when nothing is said";
  EXPECT_EQ(plan({"p"}).endpoint.host, "127.0.0.1");
  EXPECT_EQ(plan({"--master-addr", "[::1]", "p"}).endpoint.host, "::1");
  EXPECT_EQ(plan({"--master-addr", "host", "p"}).endpoint.port, 29500);
  EXPECT_EQ(plan({"--master-port=1234", "p"}).endpoint.port, 1234);
  EXPECT_EQ(plan({"--master-port=0", "p"}).endpoint.port, 0);
  EXPECT_EQ(plan({"p"}, {{"PET_MASTER_PORT", "1234"}}).endpoint.port, 1234);
  EXPECT_EQ(plan({"--rdzv-endpoint=h:77", "p"}).endpoint.host, "h");
  EXPECT_EQ(plan({"--rdzv-endpoint=h:77", "p"}).endpoint.port, 77);
  EXPECT_EQ(plan({"--standalone", "--master-port=1234", "p"}).endpoint.port, 0);
  EXPECT_EQ(plan({"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "p"}).endpoint.port, 0);
  EXPECT_EQ(plan({"--standalone", "--local-addr=10.0.0.1", "p"}).endpoint.host, "10.0.0.1");
}

TEST(LaunchConfig, RunIds) {
  EXPECT_EQ(plan({"p"}).run_id, "none");
  EXPECT_EQ(plan({"--rdzv-id=job", "p"}).run_id, "job");
  EXPECT_NE(plan({"--standalone", "p"}).run_id, plan({"--standalone", "p"}).run_id);
}

TEST(LaunchConfig, Endpoints) {
  EXPECT_EQ(parse_endpoint("[::1]:29400", 7).host, "::1");
  EXPECT_EQ(parse_endpoint("[::1]:29400", 7).port, 29400);
  EXPECT_EQ(parse_endpoint("host", 7).port, 7);
  for (const auto* text : {":1", "h:", "h:x", "h:65536", "[::1]x", "[", "h:1:2", " :1"}) {
    EXPECT_THROW(parse_endpoint(text, 7), UsageError) << text;
  }
}

TEST(LaunchConfig, EveryFlagOfTorchrunIsKnown) {
  EXPECT_NE(refusal({"--logs-specs", "x", "p"}).find("--logs-specs is not supported: "), std::string::npos);
  for (const auto* flag : {"--nnodes=1",
                           "--nproc-per-node=1",
                           "--rdzv-backend=static",
                           "--rdzv-endpoint=h:1",
                           "--rdzv-id=x",
                           "--rdzv-conf=timeout=5",
                           "--signals-to-handle=SIGTERM",
                           "--standalone",
                           "--max-restarts=1",
                           "--monitor-interval=1",
                           "--start-method=fork",
                           "--role=x",
                           "-m",
                           "--module",
                           "--no-python",
                           "--node-rank=0",
                           "--master-addr=x",
                           "--tee=3",
                           "-t3",
                           "--redirects=0",
                           "-r0",
                           "--log-dir=x",
                           "--local-ranks-filter=0",
                           "--master-port=1",
                           "--event-log-handler=console",
                           "--run-path",
                           "--use-env",
                           "--virtual-local-rank",
                           "--duplicate-stdout-filters=a,b",
                           "--duplicate-stderr-filters=a",
                           "--local-addr=x"}) {
    EXPECT_NO_THROW(plan({flag, "p"})) << flag;
  }
}

TEST(LaunchConfig, TheDocumentationIsThatOfTheTable) {
  EXPECT_NE(
      read_file(LOCKSTEP_DOCS "/launcher.md").find(run_option_table().markdown_table() + "<!-- end -->"),
      std::string::npos)
      << "put this table into docs/launcher.md:\n"
      << run_option_table().markdown_table();
}

TEST(Devices, CountsRanks) {
  const ScratchFolder dev;
  EXPECT_EQ(ranks_per_node("4", {}, dev.path()), 4);
  EXPECT_EQ(ranks_per_node("cpu", {}, dev.path()), usable_cpus());
  EXPECT_EQ(ranks_per_node("auto", {}, dev.path()), usable_cpus());
  EXPECT_THROW(ranks_per_node("gpu", {}, dev.path()), UsageError);
  for (const auto* text : {"0", "-1", "two", "", "2.0", "99999999999"}) {
    EXPECT_THROW(ranks_per_node(text, {}, dev.path()), UsageError) << text;
  }
}

TEST(Devices, CountsVisibleGpus) {
  const ScratchFolder dev;
  for (const auto* name : {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia"})
    dev.write(name, "");
  const auto visible = [&](const std::string& list) {
    return visible_gpus({{"CUDA_VISIBLE_DEVICES", list}}, dev.path());
  };
  EXPECT_EQ(visible_gpus({}, dev.path()), 3);
  EXPECT_EQ(ranks_per_node("auto", {}, dev.path()), 3);
  EXPECT_EQ(visible("0,2"), 2);
  EXPECT_EQ(visible(""), 0);
  EXPECT_EQ(visible("-1"), 0);
  EXPECT_EQ(visible("0,-1,1"), 1) << "CUDA stops at the first entry that names nothing";
  EXPECT_EQ(visible("0,7,1"), 1);
  EXPECT_EQ(visible("GPU-8932f937,MIG-1"), 2);
}

TEST(Ports, AreFree) {
  const std::uint16_t port = net::free_port();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(bind(socket_fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  close(socket_fd);
}

TEST(WorkerEnvironment, IsTheContract) {
  const LaunchConfig job =
      plan({"--nproc-per-node=4", "--role=trainer", "--rdzv-id=job", "--max-restarts=3", "p"});
  WorkerSpec attempt;
  attempt.assignment = {.round = 3,
                        .restart_count = 2,
                        .max_restarts = 3,
                        .group_rank = 1,
                        .group_world_size = 2,
                        .first_rank = 5,
                        .world_size = 9,
                        .first_role_rank = 2,
                        .role_world_size = 6};
  attempt.master = {"10.0.0.1", 1234};
  attempt.folder = "/f";
  const Environment environment = worker_environment(job, attempt, 3, {{"HOME", "/h"}, {"RANK", "9"}});
  const World world = World::from_environment(environment);
  EXPECT_EQ(world.rank, 8);
  EXPECT_EQ(world.world_size, 9);
  EXPECT_EQ(world.local_rank, 3);
  EXPECT_EQ(world.local_world_size, 4);
  EXPECT_EQ(world.group_rank, 1);
  EXPECT_EQ(world.group_world_size, 2);
  EXPECT_EQ(world.role_name, "trainer");
  EXPECT_EQ(world.role_rank, 5);
  EXPECT_EQ(world.role_world_size, 6);
  EXPECT_EQ(world.master_addr, "10.0.0.1");
  EXPECT_EQ(world.master_port, 1234);
  EXPECT_EQ(world.restart_count, 2);
  EXPECT_EQ(world.max_restarts, 3);
  EXPECT_EQ(world.run_id, "job");
  EXPECT_TRUE(world.use_agent_store);
  EXPECT_EQ(world.error_file, "/f/attempt_2/3/error.json");
  EXPECT_EQ(environment.at("HOME"), "/h");
  EXPECT_EQ(environment.at("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "1");
}

TEST(WorkerEnvironment, StartsWithTheSameCountHaveFoldersOfTheirOwn) {
  WorkerSpec attempt;
  attempt.folder = "/f";
  attempt.assignment.restart_count = 1;
  EXPECT_EQ(error_file(attempt, 0), "/f/attempt_1/0/error.json");
  attempt.repeat = 2;
  EXPECT_EQ(error_file(attempt, 0), "/f/attempt_1.2/0/error.json");
}

TEST(WorkerEnvironment, ThreadsAreLimitedOnlyWhereNobodyDid) {
  const auto threads = [](const std::string& ranks, const Environment& parent) {
    const LaunchConfig job = plan({"--nproc-per-node=" + ranks, "p"});
    return find_variable(worker_environment(job, {}, 0, parent), "OMP_NUM_THREADS");
  };
  EXPECT_EQ(threads("2", {}), "1");
  EXPECT_EQ(threads("1", {}), std::nullopt);
  EXPECT_EQ(threads("2", {{"OMP_NUM_THREADS", "6"}}), "6");
  EXPECT_EQ(thread_notice(plan({"p"}), {}), "");
}

TEST(WorkerEnvironment, MacrosAreReplacedInArguments) {
  const LaunchConfig job = plan({"p$local_rank", "${local_rank}", "a$local_rank.b", "$local_ranks", "$$",
                                 "$${local_rank}", "$LOCAL_RANK", "${local_rank", "$"});
  EXPECT_EQ(worker_command(job, 7), (Words{"p$local_rank", "7", "a7.b", "$local_ranks", "$$",
                                           "$${local_rank}", "$LOCAL_RANK", "${local_rank", "$"}));
}

TEST(WorkerEnvironment, VirtualRanksHaveOneDevice) {
  const LaunchConfig job = plan({"--nproc-per-node=2", "--virtual-local-rank", "p"});
  const auto device = [&](int rank, const Environment& parent) {
    const Environment found = worker_environment(job, {}, rank, parent);
    EXPECT_EQ(found.at("LOCAL_RANK"), "0");
    EXPECT_EQ(found.at("RANK"), std::to_string(rank));
    return found.at("CUDA_VISIBLE_DEVICES");
  };
  EXPECT_EQ(device(1, {}), "1");
  EXPECT_EQ(device(1, {{"CUDA_VISIBLE_DEVICES", "4, 7"}}), "7");
  EXPECT_EQ(device(0, {{"CUDA_VISIBLE_DEVICES", "GPU-8932f937,GPU-1"}}), "GPU-8932f937");
  EXPECT_NE(refusal({"--nproc-per-node=2", "--virtual-local-rank", "p"}, {{"CUDA_VISIBLE_DEVICES", "4"}})
                .find("no entry for rank 1"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::launch
