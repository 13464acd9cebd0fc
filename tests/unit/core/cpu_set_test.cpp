#include "core/cpu_set.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace lockstep {
namespace {

TEST(CpuSet, IsWrittenAndReadInTheKernelsForm) {
  EXPECT_EQ(cpu_list_text({}), "");
  EXPECT_EQ(cpu_list_text({4}), "4");
  EXPECT_EQ(cpu_list_text({0, 1, 2, 4, 6, 7, 64, 127}), "0-2,4,6-7,64,127");
  for (const char* text : {"", "4", "0-2,4,6-7", "0,2,4", "1023-1025"})
    EXPECT_EQ(cpu_list_text(parse_cpu_list(text)), text);
}

TEST(CpuSet, OfAnInvalidListEndsBeforeTheMistake) {
  EXPECT_EQ(parse_cpu_list("3,x,5"), (CpuSet{3}));
  EXPECT_EQ(parse_cpu_list("2-"), CpuSet{});
  EXPECT_EQ(parse_cpu_list("0-99999999999"), CpuSet{});
  EXPECT_EQ(parse_cpu_list("9-4"), CpuSet{});
}

TEST(CpuSet, BindsAThread) {
  const CpuSet before = allowed_cpus();
  const CpuSet last{*before.rbegin()};
  std::thread([&] {
    EXPECT_TRUE(bind_thread_to(last));
    EXPECT_EQ(allowed_cpus(), last);
    EXPECT_EQ(sched_getcpu(), *last.begin());
    EXPECT_FALSE(bind_thread_to({kMaxCpus - 1})) << "no machine has it";
    EXPECT_EQ(allowed_cpus(), last);
  }).join();
  EXPECT_EQ(allowed_cpus(), before);
}

}  // namespace
}  // namespace lockstep
