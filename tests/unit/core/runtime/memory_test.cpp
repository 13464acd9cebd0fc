#include "core/runtime/malloc_tuning.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace lockstep {
namespace {

constexpr std::size_t kBlock = 32U << 20;

/// Pages that the system has to clear and hand out while a large block is taken and given back a few times.
long faults_of_ten_blocks() {
  rusage before{}, after{};
  for (int round = 0; round <= 10; ++round) {
    if (round == 1) ::getrusage(RUSAGE_SELF, &before);  // The first round grows the heap.
    void* const block = std::malloc(kBlock);
    std::memset(block, round, kBlock);
    asm volatile("" : : "r"(block) : "memory");
    std::free(block);
  }
  ::getrusage(RUSAGE_SELF, &after);
  return after.ru_minflt - before.ru_minflt;
}

/// In a process of its own, since the setting is for a whole process.
bool keeps_memory(const Environment& environment, bool expected) {
  const pid_t child = ::fork();
  if (child == 0) {
    const bool done = tune_malloc(environment);
    const bool kept = faults_of_ten_blocks() < 1000;  // Of 10 * 8192 pages.
    ::_exit(done == expected && (!expected || kept) ? 0 : 1);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOwnAllocator = false;
#else
constexpr bool kOwnAllocator = true;
#endif

TEST(KeepMemory, LargeBlocksAreUsedAgain) {
  if (!kOwnAllocator) GTEST_SKIP() << "a sanitizer's allocator is in place of the C library's";
  EXPECT_TRUE(keeps_memory({}, true));
  EXPECT_TRUE(keeps_memory({{"LOCKSTEP_KEEP_MEMORY", "1"}}, true));
  EXPECT_TRUE(keeps_memory({{"GLIBC_TUNABLES", "glibc.pthread.rseq=0"}}, true));
}

TEST(KeepMemory, TheUsersWordCounts) {
  EXPECT_TRUE(keeps_memory({{"LOCKSTEP_KEEP_MEMORY", "0"}}, false));
  EXPECT_TRUE(keeps_memory({{"MALLOC_TRIM_THRESHOLD_", "1000"}}, false));
  EXPECT_TRUE(keeps_memory({{"GLIBC_TUNABLES", "glibc.malloc.arena_max=1"}}, false));
}

}  // namespace
}  // namespace lockstep
