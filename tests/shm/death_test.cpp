#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <tuple>

#include "shm/each_operation.hpp"
#include "support/folder_bootstrap_store.hpp"
#include "support/throws.hpp"
#include "support/without_pidfds.hpp"

namespace lockstep::shm {
namespace {

using namespace testing;
using lockstep::testing::contains_all;
using lockstep::testing::FolderBootstrapStore;
namespace fs = std::filesystem;

enum class Pidfds { there, missing };

/// What a rank does: the operation again and again, until it fails; the words are left in a file.
[[noreturn]] void run_rank(int number, int ranks, const fs::path& folder, const RankOperation& operation,
                           Pidfds pidfds) {
  alarm(60);  // The end of a rank that hangs.
  try {
    if (pidfds == Pidfds::missing && !lockstep::testing::live_without_pidfds())
      throw Error("this system lets no process filter its calls");
    FolderBootstrapStore store(folder);
    const auto joined = Group::join(options_for(number, ranks), store);
    Rank rank(*joined.group);
    for (int i = 0; i < 100'000'000; ++i) {
      if (i == 5) std::ofstream(folder / ("busy" + std::to_string(number))).flush();
      operation(rank);
    }
  } catch (const std::exception& error) {
    std::ofstream(folder / ("words" + std::to_string(number))) << error.what();
    _exit(3);
  }
  _exit(4);
}

std::set<std::string> names_in_shared_memory() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.find("lockstep") != std::string::npos) names.insert(name);
  }
  return names;
}

using CaseAndSize = std::tuple<Case, int>;

std::string name_of_test(const ::testing::TestParamInfo<CaseAndSize>& test) {
  return std::get<Case>(test.param).name + ("_of_" + std::to_string(std::get<int>(test.param)));
}

class AKilledRank : public ::testing::TestWithParam<CaseAndSize> {};
INSTANTIATE_TEST_SUITE_P(In, AKilledRank,
                         ::testing::Combine(::testing::ValuesIn(kCases), ::testing::Values(2, 4)),
                         name_of_test);

void expect_a_killed_rank_to_be_named(const Case& operation, int size, Pidfds pidfds) {
  const lockstep::testing::TemporaryFolder folder;
  const fs::path place(folder.path());
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(fork());
    ASSERT_GE(ranks.back(), 0);
    if (ranks.back() == 0) run_rank(rank, size, place, operation.run, pidfds);
  }
  for (int i = 0; i < 30'000 && !fs::exists(place / "busy1"); ++i) usleep(1000);
  usleep(20'000);
  kill(ranks[kKilled], SIGKILL);
  const auto killed = net::Clock::now();
  for (int rank = 0; rank < size; ++rank) {
    int status = 0;
    const pid_t process = ranks[static_cast<std::size_t>(rank)];
    ASSERT_EQ(waitpid(process, &status, 0), process);
    if (rank == kKilled) continue;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
    std::ifstream words(place / ("words" + std::to_string(rank)));
    const std::string text{std::istreambuf_iterator<char>(words), {}};
    EXPECT_TRUE(contains_all(text, {"rank " + std::to_string(rank) + " of " + std::to_string(size),
                                    "rank 1 (pid " + std::to_string(ranks[kKilled]) + ") has ended"}));
  }
  EXPECT_LT(net::Clock::now() - killed, std::chrono::seconds(20));
  EXPECT_TRUE(names_in_shared_memory().empty());
}

TEST_P(AKilledRank, IsNamedByTheOthers) {
  expect_a_killed_rank_to_be_named(std::get<Case>(GetParam()), std::get<int>(GetParam()), Pidfds::there);
}

/// Kernels before 5.3.
TEST(AKilledRankWithoutPidfds, IsNamedByTheOthers) {
  expect_a_killed_rank_to_be_named(kCases[2], 4, Pidfds::missing);
}

/// As those of a global ProcessGroup are.
TEST(GroupsOfStaticObjects, AreLeftWhenTheProgramEnds) {
  const pid_t process = fork();
  ASSERT_GE(process, 0);
  if (process == 0) {
    alarm(60);
    // Constructed before anything of the library, so destroyed after it.
    static std::vector<std::shared_ptr<Group>> groups(2);
    MemoryBootstrapStore store;
    run_threads(2, [&](int rank) {
      groups[static_cast<std::size_t>(rank)] = Group::join(options_for(rank, 2), store).group;
    });
    std::exit(groups.front() == nullptr ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(process, &status, 0), process);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace lockstep::shm
