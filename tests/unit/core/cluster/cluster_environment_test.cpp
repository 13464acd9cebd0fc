#include "core/cluster/scheduler_info.hpp"
#include "core/cluster/slurm_step.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "core/process_identity.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/world.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

/// Task 3 of `srun -N2 -n4 --distribution=cyclic` where node n1 took three tasks, as Slurm 22.05 sets it.
Environment cyclic() {
  return {{"SLURM_JOB_ID", "12"},
          {"SLURM_STEP_ID", "1"},
          {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_NTASKS", "4"},
          {"SLURM_STEP_NODELIST", "n[1-2]"},
          {"SLURM_JOB_NODELIST", "n[1-3]"},
          {"SLURM_STEP_TASKS_PER_NODE", "3,1"},
          {"SLURM_PROCID", "3"},
          {"SLURM_LOCALID", "2"},
          {"SLURM_NODEID", "0"},
          {"SLURM_GTIDS", "0,2,3"},
          {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.254"}};
}

Environment with(Environment environment, const Environment& changes) {
  for (const auto& [name, value] : changes) environment[name] = value;
  return environment;
}

std::string refusal(const Environment& environment) {
  try {
    World::from_environment(environment);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

void expect_refusal(const Environment& environment, const std::string& part) {
  const std::string text = refusal(environment);
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(SlurmStep, IsReadWhole) {
  const auto step = slurm_step(with(cyclic(), {{"SLURM_RESTART_COUNT", "2"},
                                               {"SLURM_ARRAY_JOB_ID", "10"},
                                               {"SLURM_ARRAY_TASK_ID", "7"},
                                               {"SLURM_GPUS_ON_NODE", "4"},
                                               {"SLURM_CPUS_PER_TASK", "6"}}));
  ASSERT_TRUE(step);
  EXPECT_EQ(step->job_id + "." + step->step_id, "12.1");
  EXPECT_EQ(step->nodes, (std::vector<std::string>{"n1", "n2"}));
  EXPECT_EQ(step->node_id, 0);
  EXPECT_EQ(step->tasks, 4);
  EXPECT_EQ(step->tasks_here, 3);
  EXPECT_EQ(step->ranks_here, (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(step->restart_count, 2);
  EXPECT_EQ(step->array_job_id, "10");
  EXPECT_EQ(step->array_task_id, "7");
  EXPECT_EQ(step->gpus_on_node, 4);
  EXPECT_EQ(step->cpus_per_task, 6);
}

TEST(SlurmStep, ABatchScriptIsNone) {
  Environment batch = with(cyclic(), {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_GTIDS", "0"}});
  for (const auto* name : {"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST"}) batch.erase(name);
  EXPECT_FALSE(slurm_step(batch));
  EXPECT_EQ(World::from_environment(batch).world_size, 1);
  const auto warning = lonely_process_warning(batch);
  ASSERT_TRUE(warning);
  EXPECT_NE(warning->find("Slurm job 12 has 4 tasks, but this program was not started by srun"),
            std::string::npos);
  EXPECT_FALSE(lonely_process_warning(with(batch, {{"SLURM_NTASKS", "1"}})));
  EXPECT_FALSE(lonely_process_warning(with(batch, {{"WORLD_SIZE", "4"}})));
}

TEST(SlurmStep, ABatchScriptSubmittedFromAStepIsNone) {
  const Environment batch{
      {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"}, {"SLURM_GTIDS", "0"}};
  EXPECT_FALSE(slurm_step(with(cyclic(), batch)));  // As many tasks as the step, but GTIDS is the script's.
  EXPECT_FALSE(slurm_step(with(with(cyclic(), batch), {{"SLURM_NTASKS", "3"}})));
  EXPECT_FALSE(slurm_step(with(cyclic(), {{"SLURM_JOB_NODELIST", "n[2-4]"}})));
}

TEST(SlurmStep, ContradictionsAreNamed) {
  expect_refusal(with(cyclic(), {{"SLURM_NODEID", "2"}}),
                 "SLURM_NODEID='2': expected an integer from 0 to 1");
  expect_refusal(with(cyclic(), {{"SLURM_STEP_TASKS_PER_NODE", "3"}}), "on 2 nodes (SLURM_STEP_NODELIST)");
  expect_refusal(with(cyclic(), {{"SLURM_STEP_TASKS_PER_NODE", "2(x2),x"}}),
                 "expected numbers as in 2,1(x3)");
  expect_refusal(with(cyclic(), {{"SLURM_STEP_TASKS_PER_NODE", "2(x99999999)"}}), "expected numbers");
  expect_refusal(with(cyclic(), {{"SLURM_PROCID", "9"}}), "expected less than SLURM_STEP_NUM_TASKS=4");
  expect_refusal(with(cyclic(), {{"SLURM_PROCID", "x"}}), "SLURM_PROCID='x'");
  expect_refusal(with(cyclic(), {{"SLURM_GTIDS", "0,3,2"}}), "SLURM_GTIDS='0,3,2'");
  expect_refusal(with(cyclic(), {{"SLURM_STEP_NODELIST", "n[2-1]"}}), "runs backwards");
}

/// `srun -n4 --pty bash`: the shell of one task, from which a program is started that is none of the tasks.
TEST(SlurmStep, AProgramInAnInteractiveShellIsNotATask) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t shell = fork();
  if (shell == 0) {
    dup2(ends[0], STDIN_FILENO);
    execl("/bin/sh", "-sh", nullptr);
    _exit(127);
  }
  const std::string pid = std::to_string(shell);
  std::string word;
  while (word != "-sh") {
    std::ifstream file("/proc/" + pid + "/cmdline", std::ios::binary);
    std::getline(file, word, '\0');
    usleep(1000);
  }
  const Environment interactive = with(cyclic(), {{"SLURM_PTY_PORT", "40000"}, {"SLURM_TASK_PID", pid}});
  EXPECT_FALSE(slurm_step(interactive).has_value());
  EXPECT_EQ(World::from_environment(interactive).world_size, 1);
  EXPECT_NE(lonely_process_warning(interactive).value_or("").find("lockstep run --standalone"),
            std::string::npos);
  const std::string task = std::to_string(getpid());
  EXPECT_TRUE(slurm_step(with(interactive, {{"SLURM_TASK_PID", task}})).has_value()) << "the task itself";
  EXPECT_TRUE(slurm_step(with(cyclic(), {{"SLURM_TASK_PID", pid}})).has_value())
      << "a step without a terminal";
  close(ends[1]);
  close(ends[0]);
  waitpid(shell, nullptr, 0);
}

TEST(SlurmStep, SeveralTasksOnANodeAreALauncherTooMany) {
  const auto step = slurm_step(cyclic());
  try {
    require_one_task_per_node(*step, "lockstep run");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("this Slurm step has 3 tasks on node n1"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("'srun --ntasks-per-node=1 lockstep run"), std::string::npos);
  }
  auto other = *step;
  other.tasks_here = 1;
  EXPECT_NO_THROW(require_one_task_per_node(other, "lockstep run"));
}

TEST(SlurmPort, DependsOnJobAndStepAlone) {
  EXPECT_EQ(slurm_port("12", "1"), 15'000 + 12 * 101 + 1);
  EXPECT_EQ(slurm_port("99999999999", "4294967290"), slurm_port("99999999999", "4294967290"));
  std::set<std::uint16_t> ports;
  for (int job = 1; job <= 16'384; ++job) ports.insert(slurm_port(std::to_string(job), "0"));
  EXPECT_EQ(ports.size(), 16'384U);
  EXPECT_EQ(*ports.begin(), 15'000);
  EXPECT_EQ(*ports.rbegin(), 31'383);
  EXPECT_THROW(slurm_port("12_3", "0"), UsageError);
}

TEST(SlurmWorld, IsTheStep) {
  const World world = World::from_environment(with(cyclic(), {{"SLURM_RESTART_COUNT", "1"}}));
  EXPECT_EQ(world.rank, 3);
  EXPECT_EQ(world.world_size, 4);
  EXPECT_EQ(world.local_rank, 2);
  EXPECT_EQ(world.local_world_size, 3);
  EXPECT_EQ(world.group_rank, 0);
  EXPECT_EQ(world.group_world_size, 2);
  EXPECT_EQ(world.master_addr, "n1");
  EXPECT_EQ(world.master_port, slurm_port("12", "1"));
  EXPECT_EQ(world.restart_count, 1);
  EXPECT_EQ(world.run_id, "12.1");
  EXPECT_EQ(world.local_main_rank(), 0);
}

TEST(SlurmWorld, TheMasterIsTheStepsFirstNode) {
  const Environment relative{{"SLURM_STEP_NODELIST", "n[2-3]"}};
  EXPECT_EQ(World::from_environment(with(cyclic(), relative)).master_addr, "n2");
}

TEST(SlurmWorld, AnAddressThatWasSetWins) {
  const World world =
      World::from_environment(with(cyclic(), {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "29500"}}));
  EXPECT_EQ(world.master_addr, "head");
  EXPECT_EQ(world.master_port, 29500);
}

TEST(SlurmWorld, OneTaskIsAWorldOfOne) {
  const Environment one{{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "1"},
                        {"SLURM_STEP_NODELIST", "n2"}, {"SLURM_STEP_TASKS_PER_NODE", "1"},
                        {"SLURM_PROCID", "0"},         {"SLURM_LOCALID", "0"},
                        {"SLURM_GTIDS", "0"}};
  const World world = World::from_environment(with(cyclic(), one));
  EXPECT_EQ(world.world_size, 1);
  EXPECT_TRUE(world.master_addr.empty());
  EXPECT_EQ(World::from_environment(with(with(cyclic(), one), {{"MASTER_ADDR", "n2"}})).master_port,
            slurm_port("12", "1"));
}

TEST(SlurmWorld, AnArbitraryDistributionNeedsAnAddress) {
  const Environment arbitrary{{"SLURM_DISTRIBUTION", "arbitrary"}};
  expect_refusal(with(cyclic(), arbitrary), "Set MASTER_ADDR to the name of rank 0's node");
  EXPECT_EQ(World::from_environment(with(with(cyclic(), arbitrary), {{"MASTER_ADDR", "n2"}})).master_addr,
            "n2");
}

TEST(SlurmWorld, ALauncherInTheStepIsBelieved) {
  const Environment launched{
      {"RANK", "5"},         {"WORLD_SIZE", "8"},      {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"},
      {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}, {"GROUP_RANK", "1"}};
  const World world = World::from_environment(with(cyclic(), launched));
  EXPECT_EQ(world.rank, 5);
  EXPECT_EQ(world.world_size, 8);
  EXPECT_TRUE(world.local_ranks.empty());
}

TEST(SlurmWorld, APartSetByHandMustAgree) {
  EXPECT_EQ(World::from_environment(with(cyclic(), {{"RANK", "3"}, {"WORLD_SIZE", "4"}})).rank, 3);
  expect_refusal(with(cyclic(), {{"RANK", "0"}}), "RANK='0', but Slurm step 12.1 says that it is 3");
  expect_refusal(with(cyclic(), {{"WORLD_SIZE", "8"}}),
                 "WORLD_SIZE='8', but Slurm step 12.1 says that it is 4");
  expect_refusal(with(cyclic(), {{"RANK", "0"}}), "Unset it");
}

TEST(SlurmWorld, DevicesOfItsOwnAreKnownByTheirNumber) {
  const auto own = [](const char* visible, const char* on_node) {
    return World::from_environment(
               with(cyclic(), {{"CUDA_VISIBLE_DEVICES", visible}, {"SLURM_GPUS_ON_NODE", on_node}}))
        .own_devices;
  };
  EXPECT_TRUE(own("2", "4"));
  EXPECT_TRUE(own("0,1", "4"));
  EXPECT_FALSE(own("0,1,2,3", "4"));
  EXPECT_FALSE(World::from_environment(with(cyclic(), {{"SLURM_GPUS_ON_NODE", "4"}})).own_devices);
}

/// Rank 1 of `mpirun -n 2`, as Open MPI 4.1 sets it.
Environment open_mpi() {
  return {{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"PMIX_NAMESPACE", "648347649"},     {"PMIX_RANK", "1"}};
}

const Environment kTwoNodes{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}};

TEST(MpiWorld, OpenMpiOnOneHostNeedsNothingElse) {
  const World world = World::from_environment(open_mpi());
  EXPECT_EQ(world.rank, 1);
  EXPECT_EQ(world.world_size, 2);
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.master_addr, "127.0.0.1");
  EXPECT_GE(world.master_port, 15'000);
  EXPECT_EQ(World::from_environment(
                with(open_mpi(), {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}))
                .master_port,
            world.master_port);
}

TEST(MpiWorld, SeveralHostsNeedAnAddress) {
  expect_refusal(with(open_mpi(), kTwoNodes), "MASTER_ADDR is not set and cannot be derived");
  expect_refusal(with(open_mpi(), kTwoNodes), "mpirun -x MASTER_ADDR=HOST");
  const World world = World::from_environment(with(with(open_mpi(), kTwoNodes), {{"MASTER_ADDR", "a"}}));
  EXPECT_EQ(world.group_rank, 1);
  EXPECT_EQ(world.master_addr, "a");
}

TEST(MpiWorld, ASchedulerGivesTheAddress) {
  const Environment lsf{{"LSB_MCPU_HOSTS", "a 2 b 2"}, {"LSB_JOBID", "7"}};
  EXPECT_EQ(World::from_environment(with(with(open_mpi(), kTwoNodes), lsf)).master_addr, "a");
  const Environment slurm{{"SLURM_JOB_NODELIST", "n[4-5]"}, {"SLURM_JOB_ID", "7"}};
  EXPECT_EQ(World::from_environment(with(with(open_mpi(), kTwoNodes), slurm)).master_addr, "n4");
}

TEST(MpiWorld, PbsListsItsHostsInAFile) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path() / "nodes") << "p2\np2\np9\np9\n";
  const Environment pbs{{"PBS_NODEFILE", folder.path() / "nodes"}, {"PBS_JOBID", "123[4].server"}};
  const Environment mpich{
      {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
  const World world = World::from_environment(with(mpich, pbs));
  EXPECT_EQ(world.master_addr, "p2");
  EXPECT_EQ(world.rank, 2);
  EXPECT_EQ(world.group_rank, 1);
  EXPECT_NE(world.master_port,
            World::from_environment(with(with(mpich, pbs), {{"PBS_JOBID", "123[5].server"}})).master_port);
  EXPECT_TRUE(lonely_process_warning(pbs));
}

TEST(MpiWorld, JsrunLeavesOutTheHostOfTheScript) {
  const Environment jsrun{{"JSM_NAMESPACE_RANK", "2"},
                          {"JSM_NAMESPACE_SIZE", "4"},
                          {"JSM_NAMESPACE_LOCAL_RANK", "0"},
                          {"JSM_NAMESPACE_LOCAL_SIZE", "2"},
                          {"LSB_MCPU_HOSTS", "batch 1 a 42 b 42"},
                          {"LSB_JOBID", "7"}};
  EXPECT_EQ(World::from_environment(jsrun).master_addr, "a");
}

TEST(MpiWorld, Mvapich2AndPalsAreRead) {
  const Environment job{{"LSB_MCPU_HOSTS", "a 2 b 2"}, {"LSB_JOBID", "7"}};
  const Environment mvapich{{"MV2_COMM_WORLD_RANK", "3"},
                            {"MV2_COMM_WORLD_SIZE", "4"},
                            {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                            {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_EQ(World::from_environment(with(mvapich, job)).rank, 3);
  const Environment pals{{"PALS_RANKID", "3"}, {"PMI_RANK", "3"},          {"PMI_SIZE", "4"},
                         {"PALS_NODEID", "1"}, {"PALS_LOCAL_RANKID", "1"}, {"PMI_LOCAL_SIZE", "2"}};
  EXPECT_EQ(World::from_environment(with(pals, job)).group_rank, 1);
}

TEST(MpiWorld, UnequalNodesAreToldByTheJobsHosts) {
  const std::string host = this_process().host;
  const Environment mpich{{"PMI_RANK", "3"},
                          {"PMI_SIZE", "4"},
                          {"MPI_LOCALRANKID", "0"},
                          {"MPI_LOCALNRANKS", "1"},
                          {"LSB_JOBID", "7"}};
  const World world = World::from_environment(with(mpich, {{"LSB_MCPU_HOSTS", "other 3 " + host + " 1"}}));
  EXPECT_EQ(world.group_rank, 1);
  EXPECT_EQ(world.group_world_size, 2);
}

TEST(MpiWorld, WhatIsMissingIsNamed) {
  expect_refusal({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "LOCAL_RANK is not set and cannot be derived");
  const Environment mpich{
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  expect_refusal(mpich, "MASTER_PORT is not set and cannot be derived");
  EXPECT_EQ(World::from_environment(with(mpich, {{"MASTER_PORT", "29500"}})).master_addr, "127.0.0.1");
  expect_refusal({{"PMIX_RANK", "1"}}, "nothing tells how many ranks there are");
  expect_refusal({{"OMPI_COMM_WORLD_RANK", "1"}}, "OMPI_COMM_WORLD_SIZE is not set");
}

TEST(MpiWorld, SrunsPmiVariablesAreSlurms) {
  const World world = World::from_environment(with(cyclic(), {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}));
  EXPECT_EQ(world.run_id, "12.1");
  EXPECT_EQ(world.local_rank, 2);
}

TEST(MpiWorld, MpiexecWithinAStepIsBelieved) {
  const Environment hydra{
      {"PMI_RANK", "3"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "3"}, {"MPI_LOCALNRANKS", "4"}};
  const World world = World::from_environment(with(cyclic(), hydra));
  EXPECT_EQ(world.world_size, 8);
  EXPECT_EQ(world.master_addr, "n1");
}

}  // namespace
}  // namespace lockstep
