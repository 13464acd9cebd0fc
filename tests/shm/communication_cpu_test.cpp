#include "shm/communication_cpu.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <future>

#include "comm/backend/operation_queue.hpp"
#include "groups.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::shm {
namespace {

Processors processors(const char* cpus, int threads) { return {parse_cpu_list(cpus), threads}; }

TEST(Processors, CountsThoseOfAllRanksOnce) {
  EXPECT_EQ(count_cpus({processors("0-3", 1)}), 4);
  EXPECT_EQ(count_cpus({processors("0-1", 1), processors("1-2", 1)}), 3);
  EXPECT_EQ(count_cpus({processors("64", 1), processors("63", 1)}), 2);
  EXPECT_EQ(count_cpus({}), 0);
}

TEST(Processors, GivesEachCommunicationThreadACpuOfItsRank) {
  EXPECT_EQ(communication_cpus({processors("0-1", 1), processors("2-3", 1)}), (std::vector{1, 3}));
  EXPECT_EQ(communication_cpus({processors("0-7", 3), processors("8-15", 7)}), (std::vector{7, 15}));
  EXPECT_EQ(communication_cpus({processors("64-65", 1)}), (std::vector{65}));
}

/// Ranks that are not bound: each takes another one.
TEST(Processors, GivesRanksWithTheSameCpusDifferentOnes) {
  EXPECT_EQ(communication_cpus(std::vector(4, processors("0-7", 1))), (std::vector{7, 6, 5, 4}));
}

TEST(Processors, GivesNoneWhereComputingNeedsThem) {
  EXPECT_TRUE(communication_cpus(std::vector(2, processors("0-1", 1))).empty());  // Two CPUs, two ranks.
  EXPECT_TRUE(communication_cpus({processors("0-3", 4)}).empty());                // A thread on each.
  EXPECT_TRUE(communication_cpus({processors("0-7", 1), processors("0-7", 6)}).empty());  // One short.
  // Enough together, but the second rank has none to spare.
  EXPECT_TRUE(communication_cpus({processors("0-7", 2), processors("8", 1)}).empty());
}

cpu_set_t cpus_of_the_worker(comm::OperationQueue& queue) {
  std::promise<cpu_set_t> seen;
  queue.add(
      [&] {
        cpu_set_t set;
        CPU_ZERO(&set);
        sched_getaffinity(0, sizeof set, &set);
        seen.set_value(set);
      },
      true);
  return seen.get_future().get();
}

/// The highest that this process may use.
int last_cpu() {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  EXPECT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
  int last = CPU_SETSIZE - 1;
  while (last > 0 && !CPU_ISSET(last, &mine)) --last;
  return last;
}

TEST(Processors, BindTheWorkerOfAQueue) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
  const int last = last_cpu();
  comm::OperationQueue bound(last), anywhere;
  const cpu_set_t here = cpus_of_the_worker(bound);
  EXPECT_EQ(CPU_COUNT(&here), 1);
  EXPECT_TRUE(CPU_ISSET(last, &here));
  const cpu_set_t there = cpus_of_the_worker(anywhere);
  EXPECT_TRUE(CPU_EQUAL(&there, &mine));
}

TEST(CommunicationAffinity, IsReadFromTheEnvironment) {
  const auto setting = [](const char* value) {
    return communication_affinity({{"LOCKSTEP_COMM_AFFINITY", value}});
  };
  EXPECT_FALSE(communication_affinity({}));
  EXPECT_FALSE(setting("auto"));
  EXPECT_EQ(setting("off"), std::vector<int>{});
  EXPECT_EQ(setting("15,31"), (std::vector{15, 31}));
  for (const char* wrong : {"on", "1,", ",1", "-1", "1 2", "70000", "3,x"})
    EXPECT_THROW(setting(wrong), UsageError) << wrong;
}

TEST(CommunicationAffinity, GivesEachRankOfAHostItsCpu) {
  const int cpu = last_cpu();
  testing::run_group(2, [&](Group& group) {
    const StepSync& sync = group.step_sync();
    const std::vector<int> setting = sync.rank() == 0 ? std::vector{cpu, 65535} : std::vector{65535, cpu};
    EXPECT_EQ(communication_cpu(setting, sync), cpu);
    EXPECT_EQ(communication_cpu(std::vector<int>{}, sync), -1);
    EXPECT_EQ(communication_cpu(std::nullopt, sync), sync.communication_cpu());
    EXPECT_THROW(communication_cpu(std::vector{cpu}, sync), UsageError);
  });
}

/// No machine has that CPU, so that the system refuses it.
TEST(CommunicationAffinity, SaysWhichCpuTheSystemRefuses) {
  testing::run_group(1, [](Group& group) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(communication_cpu(std::vector{65535}, group.step_sync()), -1);
    EXPECT_EQ(
        ::testing::internal::GetCapturedStderr(),
        "lockstep: warning: rank 0 of 1: LOCKSTEP_COMM_AFFINITY names CPU 65535 for this rank, which may "
        "not use it (it may use " +
            cpu_list_text(allowed_cpus()) + "): its communication thread is not bound\n");
  });
}

}  // namespace
}  // namespace lockstep::shm
