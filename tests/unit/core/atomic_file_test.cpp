#include "lockstep/core/atomic_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <thread>

#include "core/checksum.hpp"
#include "core/input_file.hpp"
#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;
using Files = std::vector<std::string>;

/// Lets no file of this process grow past a size: what a full disk looks like, a short write and then an
/// error.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(AtomicFile, KnowsTheDigestOfWhatItWrote) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "x");
  file.write(std::string(700'000, 'a'));
  file.write("b");
  const FileDigest known = file.commit(), read = digest_of(folder / "x");
  EXPECT_EQ(known.bytes, 700'001U);
  EXPECT_EQ(read.bytes, known.bytes);
  EXPECT_EQ(read.crc32c, known.crc32c);
}

TEST(AtomicFile, AppearsAtTheCommitAndNotBefore) {
  const TemporaryFolder folder;
  write_bytes(folder / "x", "old");
  AtomicFile file(folder / "x");
  file.write("new ");
  file.write("text");
  EXPECT_EQ(read_bytes(folder / "x"), "old");
  EXPECT_EQ(folder.files().size(), 2U);
  file.commit();
  EXPECT_EQ(read_bytes(folder / "x"), "new text");
  EXPECT_EQ(folder.files(), Files{"x"});
}

TEST(AtomicFile, LeavesNothingBehindWithoutACommit) {
  const TemporaryFolder folder;
  const auto interrupted = [&] {
    AtomicFile file(folder / "x");
    file.write("half");
    throw std::runtime_error("interrupted");
  };
  EXPECT_THROW(interrupted(), std::runtime_error);
  EXPECT_TRUE(folder.files().empty());
}

TEST(AtomicFile, AFullDiskLeavesTheOldFileAndNoOther) {
  const TemporaryFolder folder;
  write_bytes(folder / "x", "old");
  const std::string much(5000, 'a');
  {
    const FileSizeLimit limit(4096);
    AtomicFile file(folder / "x");
    EXPECT_THROWS(file.write(much), Error, "/x'", "4096 bytes", "File too large");
    EXPECT_EQ(folder.files(), Files{"x"});
    EXPECT_THROWS(file.write("more"), UsageError, "a write to it failed");
    EXPECT_THROWS(file.commit(), UsageError, "a write to it failed");
  }
  EXPECT_EQ(read_bytes(folder / "x"), "old");
}

TEST(AtomicFile, TakesNothingAfterTheCommit) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "x");
  file.commit();
  EXPECT_THROWS(file.write("x"), UsageError, "committed already");
  EXPECT_THROWS(file.commit(), UsageError, "committed already");
  EXPECT_EQ(read_bytes(folder / "x"), "");
}

TEST(AtomicFile, SaysWhyItCannotBeWritten) {
  const TemporaryFolder folder;
  EXPECT_THROWS(AtomicFile(folder / "absent/x"), Error, "absent/x", "No such file or directory");
  EXPECT_THROWS(AtomicFile(folder.path() / ""), UsageError, "folder");
  AtomicFile onto_folder(folder / "taken");
  std::filesystem::create_directory(folder / "taken");
  EXPECT_THROWS(onto_folder.commit(), Error, "renaming it", "Is a directory");
  EXPECT_EQ(folder.files(), Files{"taken"});
}

TEST(AtomicFile, TakesTheLongestNamesAndTheUmasksPermissions) {
  const TemporaryFolder folder;
  const std::string name(255, 'n');
  const mode_t before = ::umask(027);
  AtomicFile file(folder / name);
  ::umask(before);
  file.commit();
  struct stat status {};
  ASSERT_EQ(::stat((folder / name).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0640U);
}

TEST(AtomicFile, SeveralWritersOfOneNameDoNotMix) {
  const TemporaryFolder folder;
  std::vector<std::thread> writers;
  for (char letter = 'a'; letter < 'e'; ++letter) {
    writers.emplace_back([&folder, letter] {
      for (int round = 0; round < 5; ++round) {
        AtomicFile file(folder / "x");
        file.write(std::string(10000, letter));
        file.commit();
      }
    });
  }
  for (auto& writer : writers) writer.join();
  const auto bytes = read_bytes(folder / "x");
  EXPECT_EQ(bytes, std::string(10000, bytes.at(0)));
  EXPECT_EQ(folder.files(), Files{"x"});
}

TEST(InputFile, ReadsInPiecesAndKnowsItsSize) {
  const TemporaryFolder folder;
  write_bytes(folder / "x", "hello");
  InputFile file(folder / "x");
  EXPECT_EQ(file.size(), 5U);
  std::string text(4, '\0');
  file.read(text.data(), 2);
  file.read(text.data() + 2, 2);
  EXPECT_EQ(text, "hell");
  EXPECT_THROWS(file.read(text.data(), 3), DataError, "/x'", "ends at byte 5", "2 bytes more");
}

TEST(InputFile, RefusesAnythingButARegularFile) {
  const TemporaryFolder folder;
  EXPECT_THROWS(InputFile(folder / "absent"), DataError, "absent", "No such file");
  EXPECT_THROWS(InputFile(folder.path()), DataError, "not a regular file");
  EXPECT_THROWS(InputFile("/dev/zero"), DataError, "not a regular file");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROWS(InputFile(folder / "pipe"), DataError, "not a regular file");
}

}  // namespace
}  // namespace lockstep
