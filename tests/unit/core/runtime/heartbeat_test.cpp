#include "lockstep/core/runtime/heartbeat.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "core/runtime/heartbeat_file.hpp"
#include "core/runtime/rank_counters.hpp"
#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

class HeartbeatFile : public ::testing::Test {
 protected:
  HeartbeatFile() { make_heartbeat_file(path_); }

  HeartbeatRecord record() const {
    const auto read = read_heartbeat(path_);
    EXPECT_TRUE(read.has_value());
    return read.value_or(HeartbeatRecord{});
  }

  testing::TemporaryFolder folder_;
  std::string path_ = folder_.path() / "heartbeat";
};

TEST_F(HeartbeatFile, TellsWhatTheRankDoes) {
  EXPECT_FALSE(read_heartbeat(path_).has_value()) << "before the first beat";
  Heartbeat heartbeat(path_);
  ASSERT_TRUE(heartbeat.is_watched());
  heartbeat.working("forward");
  EXPECT_EQ(record().text(), "forward, step 0");
  EXPECT_EQ(record().pid, getpid());
  heartbeat.finished_step();
  heartbeat.perhaps_waiting("backward");
  EXPECT_EQ(record().text(), "backward, step 1");
  EXPECT_EQ(record().activity, Activity::either);
  heartbeat.resumed_at(100);
  heartbeat.finished_step();
  EXPECT_EQ(record().step, 101u);
}

TEST_F(HeartbeatFile, AWaitEndsWithWhatWasBefore) {
  Heartbeat heartbeat(path_);
  heartbeat.working("forward");
  const auto before = record().beat_time;
  {
    const Heartbeat::Waiting wait(heartbeat, "all_reduce", 412);
    EXPECT_EQ(record().text(), "all_reduce #412");
    EXPECT_EQ(record().activity, Activity::waiting);
  }
  EXPECT_EQ(record().text(), "forward, step 0");
  EXPECT_EQ(record().activity, Activity::working);
  EXPECT_GT(record().beat_time, before);
}

/// This process has no launcher, so it counts in its own memory; a file that nobody counts in has zeros.
TEST_F(HeartbeatFile, CountersAreOfSamplesAndWaits) {
  using std::chrono::milliseconds;
  const RankCounters before = rank_counters();
  count_samples(30);
  count_samples(2);
  EXPECT_EQ(rank_counters().samples, before.samples + 32);
  EXPECT_EQ(rank_counters().waited, before.waited);
  Heartbeat heartbeat(path_);
  heartbeat.working("forward");
  const auto begin = std::chrono::steady_clock::now();
  {
    const Heartbeat::Waiting wait(heartbeat, "all_reduce", 1);
    // Within another one of this thread: not counted twice.
    const WaitTime inner;
    std::this_thread::sleep_for(milliseconds(30));
  }
  const std::chrono::nanoseconds passed = std::chrono::steady_clock::now() - begin;
  const auto waited = rank_counters().waited - before.waited;
  EXPECT_GE(waited, 30'000'000u);
  EXPECT_LE(waited, static_cast<std::uint64_t>(passed.count()));
  std::thread([] {
    const WaitTime other;
    std::this_thread::sleep_for(milliseconds(5));
  }).join();
  EXPECT_GE(rank_counters().waited - before.waited, waited + 5'000'000u);
  EXPECT_EQ(record().text(), "forward, step 0");
  const auto in_file = read_rank_counters(path_);
  ASSERT_TRUE(in_file.has_value());
  EXPECT_EQ(in_file->samples + in_file->waited, 0u);
  std::filesystem::resize_file(path_, 4096);
  EXPECT_FALSE(read_rank_counters(path_).has_value());
}

TEST_F(HeartbeatFile, AWaitThatFailsIsWhatWasDoneLast) {
  Heartbeat heartbeat(path_);
  try {
    const Heartbeat::Waiting wait(heartbeat, "all_reduce", 61);
    throw Error("lost");
  } catch (const Error&) {
  }
  EXPECT_EQ(record().text(), "all_reduce #61");
}

TEST_F(HeartbeatFile, LongAndStrangeNamesAreCut) {
  Heartbeat heartbeat(path_);
  heartbeat.working(std::string(100, 'x'));
  EXPECT_EQ(record().what, std::string(40, 'x'));
  heartbeat.working("a\x1b[31m\n\xff");
  EXPECT_EQ(record().what, "a?[31m??");
}

TEST_F(HeartbeatFile, BelongsToOneLivingProcess) {
  const Heartbeat first(path_);
  const Heartbeat second(path_);
  EXPECT_TRUE(first.is_watched());
  EXPECT_FALSE(second.is_watched());
}

/// Leaves an odd sequence number, as a writer does that dies within a beat.
void interrupt_beat(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(8);
  const std::uint64_t odd = 7;
  file.write(reinterpret_cast<const char*>(&odd), sizeof odd);
}

TEST_F(HeartbeatFile, IsTakenOverFromADeadProcess) {
  for (const bool within_a_beat : {false, true}) {
    const pid_t child = fork();
    if (child == 0) {
      Heartbeat(path_).working("child");
      _exit(0);
    }
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    EXPECT_EQ(record().pid, child);
    if (within_a_beat) interrupt_beat(path_);
    Heartbeat heartbeat(path_);
    ASSERT_TRUE(heartbeat.is_watched());
    heartbeat.working("parent");
    EXPECT_EQ(record().pid, getpid());
    EXPECT_EQ(record().what, "parent") << within_a_beat;
    std::filesystem::remove(path_);
    make_heartbeat_file(path_);
  }
}

TEST_F(HeartbeatFile, AWriterThatDiesWithinABeatHurtsNobody) {
  Heartbeat heartbeat(path_);
  heartbeat.working("first");
  interrupt_beat(path_);
  EXPECT_EQ(record().what, "first");
  heartbeat.working("second");
  EXPECT_EQ(record().what, "first") << "nobody waits for the dead one";
}

/// A reader that comes in the middle of a beat sees the one before, never half of each.
TEST_F(HeartbeatFile, IsReadWholeWhileARankBeatsWithoutAPause) {
  Heartbeat heartbeat(path_);
  const std::string names[] = {std::string(40, 'a'), std::string(40, 'b')};
  heartbeat.working(names[0], 1);
  std::atomic<bool> stop{false};
  std::thread rank([&] {
    for (std::uint64_t i = 0; !stop; i ^= 1) heartbeat.working(names[i], i + 1);
  });
  for (int i = 0; i < 20'000; ++i) {
    const auto read = i % 2 == 0 ? read_heartbeat(path_) : heartbeat.last();
    if (read && (read->number == 1 || read->number == 2) && read->what == names[read->number - 1]) continue;
    ADD_FAILURE() << (read ? read->text() : "no record");
    break;
  }
  stop = true;
  rank.join();
}

TEST_F(HeartbeatFile, AnyOtherContentIsNotARecord) {
  EXPECT_FALSE(read_heartbeat(folder_.path() / "absent").has_value());
  EXPECT_FALSE(read_heartbeat(folder_.path()).has_value());
  EXPECT_FALSE(Heartbeat(folder_.path() / "absent").is_watched());
  const std::string pipe = folder_.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(read_heartbeat(pipe).has_value()) << "and must not hang";
  const std::string link = folder_.path() / "link";
  std::filesystem::create_symlink(path_, link);
  Heartbeat(path_).working("x");
  EXPECT_FALSE(read_heartbeat(link).has_value());
  std::filesystem::resize_file(path_, 20);
  EXPECT_FALSE(read_heartbeat(path_).has_value());
  EXPECT_FALSE(Heartbeat(path_).is_watched());
  EXPECT_THROW(make_heartbeat_file(path_), Error) << "it is there";
  EXPECT_THROW(make_heartbeat_file(folder_.path() / "no" / "file"), Error);
}

TEST_F(HeartbeatFile, RandomBytesAreReadWithoutHarm) {
  Heartbeat(path_).working("forward");
  std::ifstream file(path_, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::string bytes = whole;
    // All bytes, all behind the magic, or a few somewhere.
    if (round % 3 < 2) {
      for (std::size_t i = round % 3 == 0 ? 0 : 8; i < bytes.size(); ++i)
        bytes[i] = static_cast<char>(random());
    } else {
      for (int i = 0; i < 4; ++i) bytes[8 + random() % (bytes.size() - 8)] = static_cast<char>(random());
    }
    std::ofstream(path_, std::ios::binary) << bytes;
    if (const auto read = read_heartbeat(path_)) {
      EXPECT_GT(read->pid, 0);
      EXPECT_LE(read->text().size(), 100u);
    }
  }
}

/// Readers never see halves: `what` and `number` always fit.
TEST_F(HeartbeatFile, ManyThreadsBeatAtOnce) {
  Heartbeat heartbeat(path_);
  heartbeat.working("a", 1);
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      const std::string name(1 + static_cast<std::size_t>(i) * 19, static_cast<char>('a' + i));
      while (!over) heartbeat.working(name, static_cast<std::uint64_t>(i) + 1);
    });
  }
  for (int look = 0; look < 2000; ++look) {
    const HeartbeatRecord seen = record();
    ASSERT_GE(seen.number, 1u);
    ASSERT_LE(seen.number, 3u);
    const auto index = static_cast<std::size_t>(seen.number) - 1;
    // A look that falls between two beats of the same name is as good as one.
    EXPECT_EQ(seen.what, std::string(1 + index * 19, static_cast<char>('a' + index)));
  }
  over = true;
  for (auto& thread : threads) thread.join();
}

/// A bound so wide that only a system call or a lock on the way would break it.
TEST_F(HeartbeatFile, BeatsAreCheap) {
  Heartbeat heartbeat(path_);
  constexpr int kBeats = 200'000;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kBeats; ++i) heartbeat.working("forward", static_cast<std::uint64_t>(i));
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  RecordProperty("nanoseconds_per_beat", std::to_string(time.count() / kBeats));
  std::cout << "a beat takes " << time.count() / kBeats << " ns\n";
  EXPECT_LT(time.count() / kBeats, 20'000);
  EXPECT_EQ(record().number, static_cast<std::uint64_t>(kBeats) - 1);
}

TEST(Heartbeat, GoesNowhereWithoutALauncher) {
  Heartbeat heartbeat;
  heartbeat.working("x");
  heartbeat.finished_step();
  const Heartbeat::Waiting wait(heartbeat, "y", 1);
  EXPECT_FALSE(heartbeat.is_watched());
}

}  // namespace
}  // namespace lockstep
