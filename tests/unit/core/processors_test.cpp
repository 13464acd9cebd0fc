#include "core/available_cpus.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

using testing::TemporaryFolder;
using testing::write_bytes;

int allowed() {
  cpu_set_t mask;
  EXPECT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  return CPU_COUNT(&mask);
}

/// A machine's cgroup files, made up.
class Cgroups {
 public:
  explicit Cgroups(const std::string& membership) { write_bytes(folder_ / "membership", membership); }
  void limit(const std::string& file, const std::string& text) const {
    const auto path = folder_.path() / "mount" / file;
    std::filesystem::create_directories(path.parent_path());
    write_bytes(path, text);
  }
  int share(const Environment& environment = {}) const {
    return available_cpus(environment, {.membership = folder_ / "membership", .mount = folder_ / "mount"});
  }

 private:
  TemporaryFolder folder_;
};

TEST(ProcessorShare, IsTheAffinityWithoutALimit) {
  EXPECT_EQ(Cgroups("0::/job\n").share(), allowed());
  Cgroups unlimited("0::/job\n");
  unlimited.limit("job/cpu.max", "max 100000\n");
  EXPECT_EQ(unlimited.share(), allowed());
}

TEST(ProcessorShare, FollowsTheAffinity) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(Cgroups("").share(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(ProcessorShare, TheQuotaOfAGroupOrOfOneAboveItBinds) {
  Cgroups two("0::/jobs/7\n");
  two.limit("jobs/cpu.max", "90000 100000\n");
  two.limit("jobs/7/cpu.max", "800000 100000\n");
  EXPECT_EQ(two.share(), 1);
  Cgroups one("4:cpu,cpuacct:/jobs/7\n1:name=systemd:/\n");
  one.limit("cpu/jobs/7/cpu.cfs_quota_us", "50000\n");
  one.limit("cpu/jobs/7/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(one.share(), 1);
  Cgroups none("4:cpu,cpuacct:/jobs/7\n");
  none.limit("cpu/jobs/7/cpu.cfs_quota_us", "-1\n");
  none.limit("cpu/jobs/7/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(none.share(), allowed());
}

TEST(ProcessorShare, SlurmsVariableTakesPrecedence) {
  const Cgroups cgroups("0::/\n");
  EXPECT_EQ(cgroups.share({{"SLURM_CPUS_PER_TASK", "48"}}), 48);
  EXPECT_EQ(cgroups.share({{"SLURM_CPUS_PER_TASK", "many"}}), allowed());
  const Environment rank{
      {"SLURM_CPUS_PER_TASK", "48"}, {"TORCHELASTIC_RUN_ID", "7"}, {"LOCAL_WORLD_SIZE", "48"}};
  EXPECT_EQ(cgroups.share(rank), 1) << "the task is the launcher, with 48 ranks";
}

}  // namespace
}  // namespace lockstep
