#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <tuple>

#include "shm/groups.hpp"
#include "support/folder_bootstrap_store.hpp"
#include "support/throws.hpp"
#include "support/without_pidfds.hpp"

namespace lockstep::shm {
namespace {

using namespace testing;
using lockstep::testing::contains_all;
using lockstep::testing::FolderBootstrapStore;
namespace fs = std::filesystem;

constexpr int kKilled = 1;
constexpr std::size_t kCount = 3'000'000;

/// A rank and its data, of which the first half is what it gives and the second where it receives, a part for
/// each rank. The root is the last rank: in a group of two the one that is killed, in larger ones another.
struct Rank {
  explicit Rank(Group& joined)
      : group(joined), sync(joined.step_sync()), data(kCount, 1.0F), part{kCount / 2 / ranks(), Dtype::f32} {
    for (std::size_t r = 0; r < ranks(); ++r) {
      inputs.push_back(data.data() + r * part.count);
      outputs.push_back(data.data() + kCount / 2 + r * part.count);
    }
  }

  std::size_t ranks() const { return static_cast<std::size_t>(sync.size()); }
  int root() const { return sync.size() - 1; }
  Elements whole() const { return {data.size(), Dtype::f32}; }

  Group& group;
  StepSync& sync;
  std::vector<float> data;
  Elements part;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  void* shared = nullptr;
};

using Operation = std::function<void(Rank&)>;

struct Case {
  const char* name;
  Operation run;
};

void all_to_all_of(Rank& rank) {
  std::vector<Part> inputs, outputs;
  for (const void* input : rank.inputs) inputs.push_back({const_cast<void*>(input), rank.part.count});
  for (void* output : rank.outputs) outputs.push_back({output, rank.part.count});
  all_to_all(rank.sync, inputs, outputs, Dtype::f32);
}

void all_reduce_in_the_heap(Rank& rank) {
  if (rank.shared == nullptr) rank.shared = rank.group.heap()->allocate(rank.whole().bytes());
  all_reduce(rank.sync, *rank.group.heap(), rank.shared, rank.whole(), Reduction::max);
}

/// With the one that is killed, which exchanges them with everybody, so that nobody waits for anybody else.
void messages(Rank& rank) {
  P2PQueue& p2p_queue = rank.group.p2p_queue();
  for (int other = 0; other < rank.sync.size(); ++other) {
    if ((rank.sync.rank() == kKilled) == (other == kKilled)) continue;
    p2p_queue.send(other, 0, rank.inputs[0], rank.part);
    p2p_queue.wait(p2p_queue.receive({other, 0, rank.outputs[0], rank.part}));
  }
}

const Case kCases[] = {
    {"all_reduce",
     [](Rank& rank) {
       all_reduce(rank.sync, *rank.group.heap(), rank.data.data(), rank.whole(), Reduction::max);
     }},
    {"all_reduce_in_the_heap", all_reduce_in_the_heap},
    {"small_all_reduce",
     [](Rank& rank) {
       all_reduce(rank.sync, *rank.group.heap(), rank.data.data(), {100, Dtype::f32}, Reduction::max);
     }},
    {"broadcast", [](Rank& rank) { broadcast(rank.sync, rank.data.data(), rank.whole(), rank.root()); }},
    {"reduce",
     [](Rank& rank) { reduce(rank.sync, rank.data.data(), rank.whole(), Reduction::max, rank.root()); }},
    {"all_gather", [](Rank& rank) { all_gather(rank.sync, rank.inputs[0], rank.outputs, rank.part); }},
    {"gather", [](Rank& rank) { gather(rank.sync, rank.inputs[0], rank.outputs, rank.part, rank.root()); }},
    {"scatter", [](Rank& rank) { scatter(rank.sync, rank.inputs, rank.outputs[0], rank.part, rank.root()); }},
    {"reduce_scatter",
     [](Rank& rank) { reduce_scatter(rank.sync, rank.inputs, rank.outputs[0], rank.part, Reduction::max); }},
    {"all_to_all", all_to_all_of},
    {"barrier", [](Rank& rank) { barrier(rank.sync); }},
    {"messages", messages},
};

enum class Pidfds { there, missing };

/// What a rank does: the operation again and again, until it fails; the words are left in a file.
[[noreturn]] void run_rank(int number, int ranks, const fs::path& folder, const Operation& operation,
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
