#include <gtest/gtest.h>

#include <dirent.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher_process.hpp"

namespace lockstep::launch {
namespace {

/// What a launcher has at one of its attempts, as a rank of it sees.
struct Holdings {
  int descriptors = 0;
  int threads = 0;
  long kibibytes = 0;
};

/// Reads lines "ATTEMPT DESCRIPTORS THREADS KIBIBYTES".
std::map<int, Holdings> read_holdings(const std::string& path) {
  std::map<int, Holdings> result;
  std::ifstream lines(path);
  for (int attempt = 0; lines >> attempt;) {
    Holdings& now = result[attempt];
    lines >> now.descriptors >> now.threads >> now.kibibytes;
  }
  return result;
}

TEST(Restarts, AThousandOfThemLeaveNothingBehind) {
  const ScratchFolder folder;
  const ScratchFolder temporary;
  const std::string record =
      "case $TORCHELASTIC_RESTART_COUNT in 50|999) set -- /proc/$PPID/fd/*; "
      "echo $TORCHELASTIC_RESTART_COUNT $# $(grep Threads /proc/$PPID/status | tr -dc 0-9) "
      "$(grep VmRSS /proc/$PPID/status | tr -dc 0-9) >> " +
      folder.file("holdings") + ";; esac; [ $TORCHELASTIC_RESTART_COUNT = 1000 ] || exit 3";
  const Finished job = launch({"run", "--max-restarts", "1000", "--restart-backoff", "0", "sh", "-c", record},
                              {{"TMPDIR", temporary.path()}});
  EXPECT_EQ(job.status, 0) << job.err.substr(0, 2000);
  const auto holdings = read_holdings(folder.file("holdings"));
  ASSERT_EQ(holdings.size(), 2U);
  const Holdings& early = holdings.at(50);
  const Holdings& late = holdings.at(999);
  // A rank may look while its launcher is between two closes of starting it, so a few more or less say
  // nothing; one left by each restart would be 949.
  constexpr int kInPassing = 8;
  EXPECT_LE(late.descriptors, early.descriptors + kInPassing);
  EXPECT_LE(late.threads, early.threads + kInPassing);
  EXPECT_LE(late.kibibytes, early.kibibytes + 1024) << "memory grows with restarts";
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path()));
}

}  // namespace
}  // namespace lockstep::launch
