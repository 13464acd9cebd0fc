#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher_process.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/world.hpp"
#include "plan/devices.hpp"
#include "plan/launch_plan.hpp"
#include "plan/worker_environment.hpp"
#include "net/socket.hpp"
#include "report/failure_report.hpp"

namespace lockstep::launch {
namespace {

LaunchPlan plan(const std::vector<std::string>& words, const Environment& environment = {}) {
  return make_plan(run_option_table().parse(words, environment), environment);
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

TEST(LaunchPlan, ScriptsAndModulesGoToPython) {
  EXPECT_EQ(plan({"train.py", "-x"}).command, (Words{"python3", "-u", "train.py", "-x"}));
  EXPECT_EQ(plan({"-m", "pkg.train", "-x"}).command, (Words{"python3", "-u", "-m", "pkg.train", "-x"}));
  EXPECT_EQ(plan({"train.py"}, {{"PYTHON_EXEC", "/opt/python"}}).command.front(), "/opt/python");
  EXPECT_EQ(plan({"--no-python", "train.py"}).command, Words{"train.py"});
  EXPECT_EQ(plan({"./train", "a.py"}).command, (Words{"./train", "a.py"}));
  EXPECT_NE(refusal({"-m", "--no-python", "x"}).find("contradict"), std::string::npos);
}

TEST(LaunchPlan, TheProgramsFlagsAreItsOwn) {
  EXPECT_EQ(plan({"--nproc_per_node=2", "prog", "--nproc-per-node", "3", "--", "-h"}).command,
            (Words{"prog", "--nproc-per-node", "3", "--", "-h"}));
  EXPECT_EQ(plan({"--", "prog", "--"}).command, (Words{"prog", "--"}));
}

TEST(LaunchPlan, AddressesHaveTorchrunsDefaults) {
  EXPECT_FALSE(plan({"p"}).master_port.has_value()) << "a free port when nothing is said";
  EXPECT_EQ(plan({"p"}).master_addr, "127.0.0.1");
  EXPECT_EQ(plan({"--master-addr", "[::1]", "p"}).master_addr, "::1");
  EXPECT_EQ(plan({"--master-addr", "host", "p"}).master_port, 29500);
  EXPECT_EQ(plan({"--master-port=1234", "p"}).master_port, 1234);
  EXPECT_FALSE(plan({"--master-port=0", "p"}).master_port.has_value());
  EXPECT_EQ(plan({"p"}, {{"PET_MASTER_PORT", "1234"}}).master_port, 1234);
  EXPECT_EQ(plan({"--rdzv-endpoint=h:77", "p"}).master_addr, "h");
  EXPECT_EQ(plan({"--rdzv-endpoint=h:77", "p"}).master_port, 77);
  EXPECT_FALSE(plan({"--standalone", "--master-port=1234", "p"}).master_port.has_value());
  EXPECT_FALSE(plan({"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "p"}).master_port.has_value());
  EXPECT_EQ(plan({"--standalone", "--local-addr=10.0.0.1", "p"}).master_addr, "10.0.0.1");
}

TEST(LaunchPlan, RunIds) {
  EXPECT_EQ(plan({"p"}).run_id, "none");
  EXPECT_EQ(plan({"--rdzv-id=job", "p"}).run_id, "job");
  EXPECT_NE(plan({"--standalone", "p"}).run_id, plan({"--standalone", "p"}).run_id);
}

TEST(LaunchPlan, Endpoints) {
  EXPECT_EQ(parse_endpoint("[::1]:29400").host, "::1");
  EXPECT_EQ(parse_endpoint("[::1]:29400").port, 29400);
  EXPECT_EQ(parse_endpoint("host").port, std::nullopt);
  for (const auto* text : {":1", "h:", "h:x", "h:65536", "[::1]x", "[", "h:1:2", " :1"}) {
    EXPECT_THROW(parse_endpoint(text), UsageError) << text;
  }
}

TEST(LaunchPlan, EveryFlagOfTorchrunIsKnown) {
  for (const auto* flag :
       {"--event-log-handler", "--run-path", "--duplicate-stdout-filters", "--duplicate-stderr-filters",
        "--logs-specs", "--virtual-local-rank", "--use-env"}) {
    EXPECT_NE(refusal({flag, "0", "p"}).find(std::string(flag) + " is not supported: "), std::string::npos);
  }
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
                           "--local-addr=x"}) {
    EXPECT_NO_THROW(plan({flag, "p"})) << flag;
  }
}

TEST(LaunchPlan, TheDocumentationIsThatOfTheTable) {
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
  const LaunchPlan job =
      plan({"--nproc-per-node=4", "--role=trainer", "--rdzv-id=job", "--max-restarts=3", "p"});
  Attempt attempt;
  attempt.place = {.round = 3,
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
  Attempt attempt;
  attempt.folder = "/f";
  attempt.place.restart_count = 1;
  EXPECT_EQ(error_file(attempt, 0), "/f/attempt_1/0/error.json");
  attempt.repeat = 2;
  EXPECT_EQ(error_file(attempt, 0), "/f/attempt_1.2/0/error.json");
}

TEST(WorkerEnvironment, ThreadsAreLimitedOnlyWhereNobodyDid) {
  const auto threads = [](const std::string& ranks, const Environment& parent) {
    const LaunchPlan job = plan({"--nproc-per-node=" + ranks, "p"});
    return find_variable(worker_environment(job, {}, 0, parent), "OMP_NUM_THREADS");
  };
  EXPECT_EQ(threads("2", {}), "1");
  EXPECT_EQ(threads("1", {}), std::nullopt);
  EXPECT_EQ(threads("2", {{"OMP_NUM_THREADS", "6"}}), "6");
  EXPECT_EQ(thread_notice(plan({"p"}), {}), "");
}

TEST(WorkerEnvironment, MacrosAreReplacedInArguments) {
  const LaunchPlan job = plan({"p$local_rank", "${local_rank}", "a$local_rank.b", "$local_ranks", "$$",
                               "$${local_rank}", "$LOCAL_RANK", "${local_rank", "$"});
  EXPECT_EQ(worker_command(job, 7), (Words{"p$local_rank", "7", "a7.b", "$local_ranks", "$$",
                                           "$${local_rank}", "$LOCAL_RANK", "${local_rank", "$"}));
}

TEST(FailureReport, ReadsTorchrunsErrorFiles) {
  const ScratchFolder folder;
  const auto message = [&](const std::string& text) {
    return error_message(folder.write("error.json", text));
  };
  EXPECT_EQ(message(R"({"message": {"message": "ValueError: x", "extraInfo": {"timestamp": "1"}}})"),
            "ValueError: x");
  EXPECT_EQ(message(R"({"message": "text", "timestamp": 1})"), "text");
  EXPECT_EQ(message(R"({"message": {"message": "cut)"), "");
  EXPECT_EQ(message(""), "");
  EXPECT_EQ(message("[1]"), "");
  EXPECT_EQ(message(R"({"message": 3})"), "");
  EXPECT_EQ(message(std::string(5 << 20, '[')), "");
  EXPECT_EQ(error_message(folder.file("absent")), "");
}

std::vector<FailureRecord> three_records(int status) {
  std::vector<FailureRecord> records(3);
  for (int rank = 0; rank < 3; ++rank) {
    auto& record = records[static_cast<std::size_t>(rank)];
    record.rank = record.local_rank = rank;
    record.pid = 100 + rank;
    record.program = "prog";
    record.status = status;
  }
  return records;
}

TEST(FailureReport, NamesTheRootFirst) {
  auto records = three_records(0);
  records[0].status = SIGTERM;
  records[0].stopped = true;
  records[2].status = SIGKILL;
  records[2].message = "line 1\nline 2\x1b";
  EXPECT_EQ(
      failure_report(records, 2),
      "lockstep run: FAILED: rank 2 (local rank 2, pid 102, prog) was killed by SIGKILL (Killed)\n"
      "  line 1\n  line 2\n"
      "  Nobody here sent it: maybe the out-of-memory killer (see dmesg, or the memory limit of the job).\n"
      "lockstep run: rank 0 (local rank 0, pid 100, prog) was killed by SIGTERM (Terminated) after it was "
      "told to "
      "stop\n"
      "lockstep run: rank 1 (local rank 1, pid 101, prog) exited with code 0\n");
  EXPECT_EQ(exit_code_of(SIGKILL), 137);
  EXPECT_EQ(exit_code_of(7 << 8), 7);
}

TEST(FailureReport, NamesTheNodeWhereThereAreSeveral) {
  auto records = three_records(1 << 8);
  records[0].rank = 5;
  records[0].node = "node 2, host c";
  EXPECT_TRUE(failure_report(records, 0).starts_with(
      "lockstep run: FAILED: rank 5 (node 2, host c, local rank 0, pid 100, prog) exited with code 1\n"));
}

TEST(FailureReport, BlamesTheRankThatBlamesNobody) {
  const auto cause = [](const std::vector<std::string>& messages) {
    auto records = three_records(1 << 8);
    for (std::size_t i = 0; i < 3; ++i) records[i].message = messages[i];
    return root_cause(records);
  };
  EXPECT_EQ(cause({"RemoteError: x", "", "DataError: y"}), 2U);
  EXPECT_EQ(cause({"ValueError: x", "", "DataError: y"}), 0U);
  EXPECT_EQ(cause({"", "RemoteError: x", "DataError: y"}), 0U);
  EXPECT_EQ(cause({"CommunicationError: x", "TimeoutError: z", ""}), 0U);
  auto records = three_records(1 << 8);
  records[2].status = SIGTERM;
  records[2].stopped = true;
  records[1].message = "RemoteError: x";
  records[2].message = "DataError: y";
  const std::string report = failure_report(records, 2);
  EXPECT_TRUE(report.starts_with(
      "lockstep run: FAILED: rank 2 (local rank 2, pid 102, prog) reported an error, and then "
      "was told to stop\n  DataError: y\nlockstep run: rank 0"))
      << report;
}

TEST(FailureRecord, TravelsAsJson) {
  FailureRecord record = three_records(9)[1];
  record.node = "node 1, host b";
  record.message = "ValueError: x";
  record.error = {{"message", "ValueError: x"}};
  record.stopped = true;
  const FailureRecord copy = read_failure_record(nlohmann::json::parse(to_json(record).dump()));
  EXPECT_EQ(to_json(copy), to_json(record));
  auto json = to_json(record);
  json["pid"] = "none";
  EXPECT_THROW(read_failure_record(json), DataError);
  EXPECT_THROW(read_failure_record({{"rank", 1}}), DataError);
}

}  // namespace
}  // namespace lockstep::launch
