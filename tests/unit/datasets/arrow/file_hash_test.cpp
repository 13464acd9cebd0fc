#include "datasets/table/content_hash.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using table::content_hash;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

/// Remembers files of any size that are older than 50 ms: longer than a tick of a file system's clock.
constexpr HashMemoryOptions kEager{.least_bytes = 0, .settled = std::chrono::milliseconds(50)};

void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(150)); }

bool lies_in_memory(const fs::path& path) {
  struct statfs system {};
  return ::statfs(path.c_str(), &system) == 0 && system.f_type == 0x01021994;
}

/// Writes other bytes into the middle of a file.
void overwrite(const fs::path& path, std::uint64_t place, std::string_view bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(place));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(file.flush().good());
}

/// Puts made-up hashes into the memory: whoever returns one has not read the file.
void plant(const TemporaryFolder& cache, const std::string& hash) {
  for (const auto& note : fs::directory_iterator(cache / "hashes")) {
    std::string text = read_bytes(note.path());
    const auto at = text.find("\"hash\":\"");
    ASSERT_NE(at, std::string::npos) << text;
    text.replace(at + 8, 32, hash);
    write_bytes(note.path(), text);
  }
}

/// Goldens of xxHash's own test program (xsum -H2).
TEST(ContentHash, IsXxh3With128Bits) {
  EXPECT_EQ(content_hash(""), "99aa06d3014798d86001c324468d497f");
  table::ContentHash pieces;
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    pieces.update(std::to_string(i));
    text += std::to_string(i);
  }
  EXPECT_EQ(pieces.text(), content_hash(text));
  EXPECT_NE(content_hash(text + '\0'), content_hash(text));
}

TEST(HashMemory, ReadsAFileOnceThatNobodyTouches) {
  const TemporaryFolder data, cache;
  if (lies_in_memory(data.path())) GTEST_SKIP() << "the folder for temporary files lies in memory";
  write_bytes(data / "model.bin", "weights");
  settle();
  const HashMemory memory(cache.path(), kEager);
  EXPECT_EQ(memory.of(data / "model.bin"), content_hash("weights"));
  const std::string planted(32, '7');
  plant(cache, planted);
  EXPECT_EQ(memory.of(data / "model.bin"), planted) << "the file was read though its hash is remembered";
  overwrite(data / "model.bin", 3, "G");
  EXPECT_EQ(memory.of(data / "model.bin"), content_hash("weiGhts"));
}

TEST(HashMemory, SeesAChangeDespiteARestoredTime) {
  const TemporaryFolder data, cache;
  write_bytes(data / "model.bin", "weights");
  settle();
  const HashMemory memory(cache.path(), kEager);
  EXPECT_EQ(memory.of(data / "model.bin"), content_hash("weights"));
  struct stat before {};
  ASSERT_EQ(::stat((data / "model.bin").c_str(), &before), 0);
  overwrite(data / "model.bin", 3, "G");
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, (data / "model.bin").c_str(), times, 0), 0);
  EXPECT_EQ(memory.of(data / "model.bin"), content_hash("weiGhts"));
}

/// A second change within one tick of the file system's clock would leave no trace.
TEST(HashMemory, RemembersNothingOfAFileThatHasJustChanged) {
  const TemporaryFolder data, cache;
  write_bytes(data / "model.bin", "weights");
  const HashMemory memory(cache.path(), {.least_bytes = 0});
  EXPECT_EQ(memory.of(data / "model.bin"), content_hash("weights"));
  EXPECT_EQ(cache.files(), std::vector<std::string>());
}

TEST(HashMemory, SurvivesWhateverLiesInItsFolder) {
  const TemporaryFolder data, cache;
  if (lies_in_memory(data.path())) GTEST_SKIP() << "the folder for temporary files lies in memory";
  write_bytes(data / "model.bin", "weights");
  settle();
  const HashMemory memory(cache.path(), kEager);
  EXPECT_EQ(memory.of(data / "model.bin"), content_hash("weights"));
  for (const auto& note : fs::directory_iterator(cache / "hashes")) write_bytes(note.path(), "{\"hash\":");
  EXPECT_EQ(memory.of(data / "model.bin"), content_hash("weights"));
  write_bytes(cache / "file", "");
  EXPECT_EQ(HashMemory(cache / "file", kEager).of(data / "model.bin"), content_hash("weights"));
  EXPECT_EQ(HashMemory(fs::path(), kEager).of(data / "model.bin"), content_hash("weights"));
}

/// The mapping is of the old file, the name of the new one.
TEST(HashMemory, KeepsAReplacedFileApartFromTheOneThatIsMapped) {
  const TemporaryFolder data, cache;
  write_bytes(data / "a", "old");
  const arrow_file::MappedFile old(data / "a");
  write_bytes(data / "b", "new");
  fs::rename(data / "b", data / "a");
  settle();
  const HashMemory memory(cache.path(), kEager);
  EXPECT_EQ(memory.of(data / "a"), content_hash("new"));
  EXPECT_EQ(memory.of(old), content_hash("old"));
  EXPECT_EQ(memory.of(data / "a"), content_hash("new"));
}

TEST(HashMemory, OfAFolderFollowsNamesAndBytes) {
  const TemporaryFolder data;
  const HashMemory memory{fs::path()};
  fs::create_directories(data / "model/part");
  write_bytes(data / "model/a", "1");
  write_bytes(data / "model/part/b", "2");
  const std::string before = memory.of(data / "model");
  EXPECT_EQ(memory.of(data / "model"), before);
  fs::rename(data / "model/part/b", data / "model/part/c");
  EXPECT_NE(memory.of(data / "model"), before);
  fs::rename(data / "model/part/c", data / "model/part/b");
  write_bytes(data / "model/part/b", "3");
  EXPECT_NE(memory.of(data / "model"), before);
  EXPECT_THROWS(memory.of(data / "none"), DataError, "none");
}

TEST(ArrowDataset, FingerprintOfALargeFileFollowsEveryByte) {
  const TemporaryFolder folder;
  // 72 MB.
  std::vector<std::int64_t> labels(9'000'000, 1);
  ArrowDataset::from_columns({{"label", make_column(labels)}}).to_arrow(folder / "a.arrow");
  const fs::path file = folder / "a.arrow";
  const auto fingerprint = [&] { return ArrowDataset::load(file).fingerprint(); };
  const std::string before = fingerprint();
  EXPECT_EQ(fingerprint(), before);
  const auto bytes = fs::file_size(file);
  ASSERT_GT(bytes, std::uint64_t{64} << 20);
  const std::uint64_t middle = bytes / 2 + 12'345;
  const char old = read_bytes(file)[middle];
  overwrite(file, middle, std::string(1, static_cast<char>(old + 1)));
  EXPECT_NE(fingerprint(), before);
  overwrite(file, middle, std::string(1, old));
  EXPECT_EQ(fingerprint(), before);
}

}  // namespace
}  // namespace lockstep
