#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "shm/groups.hpp"
#include "support/folder_board.hpp"
#include "support/throws.hpp"

namespace lockstep::shm {
namespace {

using namespace testing;
using lockstep::testing::contains_all;
using lockstep::testing::FolderBoard;
namespace fs = std::filesystem;

constexpr int kRanks = 3;
constexpr std::size_t kCount = 3'000'000;

using Operation = std::function<void(Group&, float* data)>;

struct Case {
  const char* name;
  Operation run;
};

void all_to_all_of(Group& group, float* data) {
  const Part part{data, kCount / kRanks / 2};
  const Part other{data + kCount / 2, kCount / kRanks / 2};
  const Part inputs[] = {part, part, part}, outputs[] = {other, other, other};
  all_to_all(group.exchange(), inputs, outputs, Dtype::f32);
}

void reduce_scatter_of(Group& group, float* data) {
  const void* const inputs[] = {data, data + kCount / 4, data + kCount / 2};
  reduce_scatter(group.exchange(), inputs, data, {kCount / 4, Dtype::f32}, Reduction::sum);
}

void gather_of(Group& group, float* data, bool everywhere) {
  void* const outputs[] = {data, data + kCount / 4, data + kCount / 2};
  const Elements elements{kCount / 4, Dtype::f32};
  if (everywhere) return all_gather(group.exchange(), data, outputs, elements);
  gather(group.exchange(), data, outputs, elements, 1);
}

void scatter_of(Group& group, float* data) {
  const void* const inputs[] = {data, data, data};
  scatter(group.exchange(), inputs, data + kCount / 2, {kCount / 2, Dtype::f32}, 1);
}

const Elements kAll{kCount, Dtype::f32};

const Case kCases[] = {
    {"all_reduce",
     [](Group& group, float* data) {
       all_reduce(group.exchange(), *group.heap(), data, kAll, Reduction::max);
     }},
    {"all_reduce_in_the_heap",
     [](Group& group, float*) {
       static void* const shared = group.heap()->allocate(kAll.bytes());
       all_reduce(group.exchange(), *group.heap(), shared, kAll, Reduction::max);
     }},
    {"broadcast", [](Group& group, float* data) { broadcast(group.exchange(), data, kAll, 1); }},
    {"reduce", [](Group& group, float* data) { reduce(group.exchange(), data, kAll, Reduction::max, 1); }},
    {"all_gather", [](Group& group, float* data) { gather_of(group, data, true); }},
    {"gather", [](Group& group, float* data) { gather_of(group, data, false); }},
    {"scatter", scatter_of},
    {"reduce_scatter", reduce_scatter_of},
    {"all_to_all", all_to_all_of},
    {"barrier", [](Group& group, float*) { barrier(group.exchange()); }},
};

/// What a rank does: the operation again and again, until it fails; the words are left in a file.
[[noreturn]] void run_rank(int rank, const fs::path& folder, const Operation& operation) {
  alarm(60);  // The end of a rank that hangs.
  try {
    FolderBoard board(folder);
    const auto joined = Group::join(options_for(rank, kRanks), board);
    std::vector<float> data(kCount, 1.0F);
    for (int i = 0; i < 1'000'000; ++i) {
      if (i == 5) std::ofstream(folder / ("busy" + std::to_string(rank))).flush();
      operation(*joined.group, data.data());
    }
  } catch (const std::exception& error) {
    std::ofstream(folder / ("words" + std::to_string(rank))) << error.what();
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

class AKilledRank : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(In, AKilledRank, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(AKilledRank, IsNamedByTheOthers) {
  const lockstep::testing::TemporaryFolder folder;
  const fs::path place(folder.path());
  pid_t ranks[kRanks];
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks[rank] = fork();
    ASSERT_GE(ranks[rank], 0);
    if (ranks[rank] == 0) run_rank(rank, place, GetParam().run);
  }
  for (int i = 0; i < 30'000 && !fs::exists(place / "busy1"); ++i) usleep(1000);
  usleep(20'000);
  kill(ranks[1], SIGKILL);
  const auto killed = net::Clock::now();
  for (int rank = 0; rank < kRanks; ++rank) {
    int status = 0;
    ASSERT_EQ(waitpid(ranks[rank], &status, 0), ranks[rank]);
    if (rank == 1) continue;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
    std::ifstream words(place / ("words" + std::to_string(rank)));
    const std::string text{std::istreambuf_iterator<char>(words), {}};
    EXPECT_TRUE(contains_all(text, {"rank " + std::to_string(rank) + " of 3",
                                    "rank 1 (pid " + std::to_string(ranks[1]) + ") has ended"}));
  }
  EXPECT_LT(net::Clock::now() - killed, std::chrono::seconds(20));
  EXPECT_TRUE(names_in_shared_memory().empty());
}

}  // namespace
}  // namespace lockstep::shm
