#include "core/atomic_directory.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;
using Files = std::vector<std::string>;
namespace fs = std::filesystem;

TEST(AtomicDirectory, AppearsAtTheCommitAndNotBefore) {
  const TemporaryFolder place;
  AtomicDirectory folder(place / "above/new");
  write_bytes(folder.path() / "x", "text");
  EXPECT_FALSE(fs::exists(place / "above/new"));
  folder.commit();
  EXPECT_EQ(read_bytes(place / "above/new/x"), "text");
  EXPECT_EQ(std::distance(fs::directory_iterator(place / "above"), fs::directory_iterator()), 1);
  EXPECT_THROWS(folder.commit(), UsageError, "committed already");
}

TEST(AtomicDirectory, LeavesNothingBehindWithoutACommit) {
  const TemporaryFolder place;
  {
    AtomicDirectory folder(place / "new");
    write_bytes(folder.path() / "x", "text");
  }
  EXPECT_TRUE(place.files().empty());
}

TEST(AtomicDirectory, TakesThePlaceOfAnOlderOne) {
  const TemporaryFolder place;
  fs::create_directory(place / "it");
  write_bytes(place / "it/old", "old");
  AtomicDirectory folder(place / "it");
  write_bytes(folder.path() / "new", "new");
  EXPECT_EQ(read_bytes(place / "it/old"), "old");
  folder.commit();
  EXPECT_EQ(read_bytes(place / "it/new"), "new");
  EXPECT_FALSE(fs::exists(place / "it/old"));
  EXPECT_EQ(place.files(), Files{"it"});
}

/// Whoever looks while folders are exchanged sees one or the other, whole, at every moment.
TEST(AtomicDirectory, IsThereAtEveryMomentWhileItIsReplaced) {
  const TemporaryFolder place;
  std::atomic<bool> done{false};
  { AtomicDirectory(place / "it").commit(); }
  std::thread writer([&] {
    for (int i = 0; i < 200; ++i) AtomicDirectory(place / "it").commit();
    done = true;
  });
  int looks = 0;
  int missing = 0;
  struct stat status {};
  for (; !done; ++looks) missing += ::stat((place / "it").c_str(), &status) == 0 ? 0 : 1;
  writer.join();
  EXPECT_GT(looks, 0);
  EXPECT_EQ(missing, 0);
}

TEST(AtomicDirectory, WhatKilledProcessesLeaveIsCleared) {
  const TemporaryFolder place;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    AtomicDirectory folder(place / "new");
    write_bytes(folder.path() / "x", "text");
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  write_bytes(place / "mine.tmp", "");
  EXPECT_EQ(place.files().size(), 2U);
  remove_leftovers(place.path());
  EXPECT_EQ(place.files(), Files{"mine.tmp"});
  remove_leftovers(place / "none");
}

TEST(AtomicDirectory, SaysWhatIsWrongWithItsPlace) {
  const TemporaryFolder place;
  write_bytes(place / "file", "");
  EXPECT_THROWS(AtomicDirectory(place / "file/new"), Error, "/file/new'", "cannot be made");
  EXPECT_THROWS(AtomicDirectory((place / "new/").string()), UsageError, "slash");
  EXPECT_THROWS(remove_folder(place / "none"), Error, "/none'", "No such file");
}

}  // namespace
}  // namespace lockstep
