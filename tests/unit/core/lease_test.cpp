#include "core/lease.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::TemporaryFolder;

constexpr LeaseOptions kQuick{.beat = 20ms, .stale_after = 300ms};

/// What a holder that nobody can look up leaves: one of another machine.
void write_foreign_lease(const std::filesystem::path& file) {
  ProcessIdentity process = this_process();
  process.host = "elsewhere";
  process.boot = "another boot";
  testing::write_bytes(file, nlohmann::json{{"process", process}, {"token", "elsewhere-1"}}.dump());
}

/// A child that takes the lease of `folder` and is killed with it.
void leave_lease_of_dead_process(const std::filesystem::path& folder) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lease = LeaseAcquirer(folder, kQuick).try_take();
    const char answer = lease ? 'y' : 'n';
    [[maybe_unused]] const auto told = write(ready[1], &answer, 1);
    pause();
    _exit(0);
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST(Lease, OneHolderAtATime) {
  const TemporaryFolder folder;
  LeaseAcquirer first(folder.path(), kQuick), second(folder.path(), kQuick);
  auto lease = first.try_take();
  ASSERT_TRUE(lease);
  EXPECT_FALSE(second.try_take());
  EXPECT_EQ(second.holder().process, this_process());
  EXPECT_EQ(live_lease(folder.path())->process.pid, getpid());
  lease.reset();
  EXPECT_FALSE(live_lease(folder.path()));
  EXPECT_TRUE(second.try_take());
  EXPECT_TRUE(folder.files().empty());
}

TEST(Lease, OfADeadProcessIsTakenAtOnce) {
  const TemporaryFolder folder;
  leave_lease_of_dead_process(folder.path());
  EXPECT_EQ(folder.files(), std::vector<std::string>{"lease.1"});
  EXPECT_FALSE(live_lease(folder.path()));
  LeaseAcquirer acquirer(folder.path(), {.beat = 1h, .stale_after = 1h});
  const auto lease = acquirer.try_take();
  ASSERT_TRUE(lease);
  EXPECT_EQ(folder.files(), std::vector<std::string>{"lease.2"});
}

TEST(Lease, OfAnotherHostIsTakenWhenItHasNotChangedForAWhile) {
  const TemporaryFolder folder;
  write_foreign_lease(folder / "lease.4");
  EXPECT_EQ(live_lease(folder.path())->process.host, "elsewhere");
  LeaseAcquirer acquirer(folder.path(), kQuick);
  // While it beats it is alive, however long that goes on.
  for (int beats = 0; beats < 5; ++beats) {
    EXPECT_FALSE(acquirer.try_take());
    std::this_thread::sleep_for(100ms);
    utimensat(AT_FDCWD, (folder / "lease.4").c_str(), nullptr, 0);
  }
  EXPECT_FALSE(acquirer.try_take());
  EXPECT_EQ(acquirer.holder().process.host, "elsewhere");
  std::this_thread::sleep_for(400ms);
  const auto lease = acquirer.try_take();
  ASSERT_TRUE(lease);
  EXPECT_TRUE(lease->held());
  EXPECT_EQ(folder.files(), std::vector<std::string>{"lease.5"});
}

TEST(Lease, AHolderThatLostItFindsOut) {
  const TemporaryFolder folder;
  LeaseAcquirer acquirer(folder.path(), kQuick);
  auto lease = acquirer.try_take();
  ASSERT_TRUE(lease);
  write_foreign_lease(folder / "lease.2");
  for (int tries = 0; tries < 500 && lease->held(); ++tries) std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(lease->held());
  lease.reset();
  EXPECT_TRUE(std::filesystem::exists(folder / "lease.2")) << "it is another's";
}

TEST(Lease, OfManySeekersOneTakesADeadOnesPlace) {
  const TemporaryFolder folder;
  leave_lease_of_dead_process(folder.path());
  std::atomic<int> taken{0}, together{0}, most{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      LeaseAcquirer acquirer(folder.path(), kQuick);
      for (int tries = 0; tries < 200; ++tries) {
        const auto lease = acquirer.try_take();
        if (!lease) continue;
        ++taken;
        most = std::max(most.load(), ++together);
        std::this_thread::yield();
        --together;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_GT(taken, 0);
  EXPECT_EQ(most, 1);
}

TEST(Lease, AFolderThatCannotBeWrittenIsNamed) {
  const TemporaryFolder folder;
  testing::write_bytes(folder / "file", "");
  LeaseAcquirer acquirer(folder / "file" / "entry", kQuick);
  EXPECT_THROWS(acquirer.try_take(), Error, (folder / "file").string());
}

TEST(ProcessIdentity, TellsTheLivingFromTheDead) {
  ProcessIdentity process = this_process();
  EXPECT_EQ(liveness_of(process), Liveness::alive);
  ++process.start;
  EXPECT_EQ(liveness_of(process), Liveness::dead) << "another process has the number now";
  process.boot = "another boot";
  EXPECT_EQ(liveness_of(process), Liveness::unknown);
}

TEST(AcquireLease, KeepsASecondWriterOutAndNamesTheFirst) {
  const TemporaryFolder place;
  {
    const auto lease = acquire_lease(place / "shared");
    EXPECT_THROWS(acquire_lease(place / "shared", 10ms), UsageError, "/shared'",
                  "in use by process " + std::to_string(getpid()) + " on " + this_process().host);
  }
  EXPECT_TRUE(std::filesystem::is_empty(place / "shared"));
  EXPECT_TRUE(acquire_lease(place / "shared", 0ms));
}

TEST(AcquireLease, WhoWaitsGetsALeaseThatOthersSee) {
  const TemporaryFolder place;
  auto first = acquire_lease(place.path());
  std::thread waiting([&] {
    const auto second = acquire_lease(place.path());
    EXPECT_THROWS(acquire_lease(place.path(), 10ms), UsageError, "in use by process ");
  });
  std::this_thread::sleep_for(120ms);
  first.reset();
  waiting.join();
}

TEST(AcquireLease, EndsWithAProcessThatIsKilled) {
  const TemporaryFolder place;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto lease = acquire_lease(place.path());
    [[maybe_unused]] const auto written = write(ready[1], "x", 1);
    pause();
  }
  char letter = 0;
  ASSERT_EQ(read(ready[0], &letter, 1), 1);
  EXPECT_THROWS(acquire_lease(place.path(), 10ms), UsageError, "in use by process " + std::to_string(child));
  kill(child, SIGKILL);
  EXPECT_TRUE(acquire_lease(place.path()));  // Waits for the end of a process that is ending.
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  close(ready[0]);
  close(ready[1]);
}

TEST(AcquireLease, OneOfAHostThatIsGoneGoesStale) {
  const TemporaryFolder place;
  write_foreign_lease(place / "lease.1");
  EXPECT_THROWS(acquire_lease(place.path(), 10ms, kQuick), UsageError, "on elsewhere");
  EXPECT_TRUE(acquire_lease(place.path(), 10s, kQuick));
}

TEST(AcquireLease, SaysWhatIsWrongWithItsPlace) {
  const TemporaryFolder place;
  testing::write_bytes(place / "file", "");
  EXPECT_THROWS(acquire_lease(place / "file/new"), Error, "/file/new'", "Not a directory");
}

}  // namespace
}  // namespace lockstep
