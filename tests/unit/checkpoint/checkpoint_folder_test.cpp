#include "checkpoint/checkpoint_folder.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>

#include "checkpoint/manifest.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;
using Steps = std::vector<std::int64_t>;

/// Tells the digest of the first file only.
FileDigests write_files(const fs::path& folder) {
  FileDigests known;
  for (const auto* name : {"model.safetensors", "optimizer.json"}) {
    AtomicFile file(folder / name);
    file.write(std::string(100, name[0]));
    const FileDigest digest = file.commit();
    if (known.empty()) known[name] = digest;
  }
  return known;
}

void write_step(const fs::path& folder, std::int64_t step, const std::string& started_from = "") {
  write_checkpoint(folder / checkpoint_name(step), {.step = step, .started_from = started_from}, write_files);
}

Steps steps_in(const fs::path& folder) {
  Steps steps;
  for (const auto& checkpoint : list_checkpoints(folder)) steps.push_back(checkpoint.info.step);
  return steps;
}

void flip_bit(const fs::path& path, std::size_t bit) {
  std::string bytes = read_bytes(path);
  bytes.at(bit / 8) = static_cast<char>(bytes.at(bit / 8) ^ (1 << (bit % 8)));
  write_bytes(path, bytes);
}

TEST(CheckpointFolder, GivesBackWhatWasWritten) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "checkpoint-7",
                   {.step = 7, .epoch = 2, .world_size = 3, .started_from = "/else/checkpoint-5"},
                   write_files);
  const Checkpoint checkpoint = verify_checkpoint(folder / "checkpoint-7");
  EXPECT_EQ(checkpoint.path, folder / "checkpoint-7");
  EXPECT_EQ(checkpoint.info.step, 7);
  EXPECT_EQ(checkpoint.info.epoch, 2);
  EXPECT_EQ(checkpoint.info.world_size, 3);
  EXPECT_EQ(checkpoint.info.started_from, "/else/checkpoint-5");
  EXPECT_EQ(checkpoint.info.sequence, 1);
  EXPECT_EQ(folder.files(), std::vector<std::string>{"checkpoint-7"});
}

/// A bit of every byte of every file, the manifest's among them.
TEST(CheckpointFolder, SeesAFlippedBitAnywhere) {
  const TemporaryFolder folder;
  write_step(folder.path(), 1);
  const auto path = folder / "checkpoint-1";
  for (const auto* name : {"model.safetensors", "optimizer.json", kManifestFileName}) {
    const std::string good = read_bytes(path / name);
    int seen = 0;
    for (std::size_t byte = 0; byte < good.size(); ++byte) {
      flip_bit(path / name, byte * 8 + byte % 8);
      try {
        verify_checkpoint(path);
        // Blanks between the manifest's words may change without changing what it says.
        EXPECT_TRUE(name == std::string(kManifestFileName) && std::isspace(good[byte]) != 0) << name << byte;
      } catch (const DataError&) {
        ++seen;
      }
      write_bytes(path / name, good);
    }
    EXPECT_GE(seen, 100) << name;
  }
  verify_checkpoint(path);
}

TEST(CheckpointFolder, SaysWhatIsDamaged) {
  const TemporaryFolder folder;
  write_step(folder.path(), 1);
  const auto path = folder / "checkpoint-1";
  flip_bit(path / "model.safetensors", 77);
  EXPECT_THROWS(verify_checkpoint(path), DataError, "model.safetensors' has the checksum ",
                "changed or damaged");
  fs::resize_file(path / "model.safetensors", 99);
  EXPECT_THROWS(verify_checkpoint(path), DataError, "model.safetensors' has 99 bytes, but 100 were written");
  fs::remove(path / "model.safetensors");
  EXPECT_THROWS(verify_checkpoint(path), DataError, "model.safetensors'", "No such file");
  fs::remove(path / kManifestFileName);
  EXPECT_THROWS(verify_checkpoint(path), DataError, "is not a checkpoint", "it has no manifest.json");
}

TEST(CheckpointFolder, FallsBackToTheNewestThatIsWhole) {
  const TemporaryFolder folder;
  for (const std::int64_t step : {10, 20, 30, 40, 50}) write_step(folder.path(), step);
  flip_bit(folder / "checkpoint-50/model.safetensors", 8);
  fs::resize_file(folder / "checkpoint-40/optimizer.json", 3);
  write_bytes(folder / "checkpoint-30/manifest.json", "{");
  const auto latest = latest_checkpoint(folder.path());
  ASSERT_TRUE(latest.checkpoint);
  EXPECT_EQ(latest.checkpoint->info.step, 20);
  std::vector<std::string> passed;
  for (const auto& bad : latest.passed_over) passed.push_back(bad.path.filename());
  EXPECT_EQ(passed, (std::vector<std::string>{"checkpoint-30", "checkpoint-50", "checkpoint-40"}));
}

TEST(CheckpointFolder, IsFreeToHaveNone) {
  const TemporaryFolder folder;
  EXPECT_FALSE(latest_checkpoint(folder / "none").checkpoint);
  EXPECT_FALSE(latest_checkpoint(folder.path()).checkpoint);
  write_bytes(folder / "checkpoint-x", "");
  EXPECT_TRUE(latest_checkpoint(folder.path()).passed_over.empty());
}

TEST(CheckpointFolder, AnOutputFolderInPlaceOfACheckpointIsToldOf) {
  const TemporaryFolder folder;
  EXPECT_THROWS(verify_checkpoint(folder / "none"), DataError,
                "none' is not a checkpoint: there is no such folder");
  EXPECT_THROWS(verify_checkpoint(folder.path()), DataError, "is not a checkpoint: it has no manifest.json.");
  for (const std::int64_t step : {8, 10, 9}) write_step(folder.path(), step);
  EXPECT_THROWS(verify_checkpoint(folder.path()), DataError, "The last one in it is '",
                (folder / "checkpoint-10").string() + "'");
}

TEST(CheckpointFolder, TheNewestIsTheOneWrittenLast) {
  const TemporaryFolder folder;
  for (const std::int64_t step : {10, 50, 9}) write_step(folder.path(), step);
  EXPECT_EQ(steps_in(folder.path()), (Steps{9, 50, 10}));
  EXPECT_EQ(latest_checkpoint(folder.path()).checkpoint->info.step, 9);
}

TEST(CheckpointFolder, ChoosesAmongThoseThatFit) {
  const TemporaryFolder folder;
  write_step(folder.path(), 10, "a");
  write_step(folder.path(), 20, "b");
  const auto from = [](const char* origin) {
    return [origin](const CheckpointInfo& info) { return info.started_from == origin; };
  };
  EXPECT_EQ(latest_checkpoint(folder.path(), from("a")).checkpoint->info.step, 10);
  EXPECT_FALSE(latest_checkpoint(folder.path(), from("c")).checkpoint);
}

TEST(CheckpointFolder, RotatesByAge) {
  const TemporaryFolder folder;
  for (std::int64_t step = 1; step <= 11; ++step) {
    write_step(folder.path(), step);
    rotate_checkpoints(folder.path(), {.keep_last = 2});
  }
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"checkpoint-10", "checkpoint-11"}));
  rotate_checkpoints(folder.path(), {.keep_last = 0});
  EXPECT_EQ(steps_in(folder.path()), (Steps{11, 10}));
}

TEST(CheckpointFolder, RotationDoesNotCountDamagedOnes) {
  const TemporaryFolder folder;
  for (const std::int64_t step : {1, 2, 3, 4}) write_step(folder.path(), step);
  write_bytes(folder / "checkpoint-2/manifest.json", "");
  rotate_checkpoints(folder.path(), {.keep_last = 2}, {{folder / "checkpoint-3", "damaged"}});
  EXPECT_EQ(steps_in(folder.path()), (Steps{4, 1}));
}

TEST(CheckpointFolder, LeavesOtherPeoplesFoldersAlone) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "checkpoint-5");
  write_bytes(folder / "checkpoint-5/pytorch_model.bin", "theirs");
  EXPECT_THROWS(write_step(folder.path(), 5), UsageError, "/checkpoint-5' exists and has no manifest.json");
  for (const std::int64_t step : {1, 2}) write_step(folder.path(), step);
  const auto latest = latest_checkpoint(folder.path());
  EXPECT_EQ(latest.checkpoint->info.step, 2);
  EXPECT_EQ(latest.passed_over.size(), 1U);
  rotate_checkpoints(folder.path(), {.keep_last = 1});
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"checkpoint-2", "checkpoint-5"}));
}

/// What a full disk does to a write, at every place where the writing can be cut off.
TEST(CheckpointFolder, AFullDiskLeavesEverythingAsItWas) {
  const TemporaryFolder folder;
  write_step(folder.path(), 1);
  const std::string before = read_bytes(folder / "checkpoint-1/model.safetensors");
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  ::getrlimit(RLIMIT_FSIZE, &unlimited);
  for (const rlim_t bytes : {0, 1, 99, 100, 300}) {
    const rlimit limit{bytes, unlimited.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    EXPECT_THROWS(write_step(folder.path(), 1), Error, "File too large");
    ::setrlimit(RLIMIT_FSIZE, &unlimited);
    EXPECT_EQ(folder.files(), std::vector<std::string>{"checkpoint-1"});
    EXPECT_EQ(read_bytes(folder / "checkpoint-1/model.safetensors"), before);
    EXPECT_EQ(verify_checkpoint(folder / "checkpoint-1").info.sequence, 1);
  }
  std::signal(SIGXFSZ, handler);
}

TEST(Manifest, SaysTheSameAfterARoundTrip) {
  const manifest::Manifest written{
      .info = {.step = 1, .epoch = 2, .world_size = 3, .started_from = "ü\"\\\n", .sequence = 5},
      .files = {{"a", {10, 0xdeadbeef}}, {"b", {0, 0}}}};
  const auto read = manifest::from_text(manifest::to_text(written), "m");
  EXPECT_EQ(read.info.started_from, written.info.started_from);
  EXPECT_EQ(read.files.at("a").crc32c, 0xdeadbeefU);
  EXPECT_EQ(read.files.at("a").bytes, 10U);
  EXPECT_EQ(manifest::to_text(read), manifest::to_text(written));
}

TEST(Manifest, RefusesWhatIsNone) {
  std::string deep(100'000, '[');
  for (const std::string& text : {std::string(), std::string("{}"), std::string("[]"), std::string("null"),
                                  std::string("{\"format\": 1}"), std::string("\xff"), deep}) {
    EXPECT_THROW(manifest::from_text(text, "m"), DataError) << text.substr(0, 20);
  }
  EXPECT_THROWS(manifest::from_text("{\"format\": \"lockstep checkpoint\", \"version\": 2}", "m"), DataError,
                "version 2; this library reads 1");
}

TEST(Manifest, LeadsOutOfNoFolder) {
  for (const auto* name : {"../x", "/etc/passwd", "a/b", "..", ".", ""}) {
    const auto text = manifest::to_text({.info = {}, .files = {{name, {1, 1}}}});
    EXPECT_THROWS(manifest::from_text(text, "m"), DataError, "not a plain file name");
  }
}

/// The best and every hundredth stay, and the newest whatever else is said.
TEST(CheckpointFolder, KeepsTheBestAndTheMilestones) {
  const TemporaryFolder folder;
  const std::map<std::int64_t, double> metrics = {{50, 3}, {100, 9}, {150, 1}, {200, 8}, {250, 1}, {300, 7}};
  for (const auto& [step, metric] : metrics)
    write_checkpoint(folder / checkpoint_name(step), {.step = step, .metric = metric}, write_files);
  write_step(folder.path(), 350);
  rotate_checkpoints(folder.path(), {.keep_last = 1, .keep_best = 2, .keep_every = 100});
  EXPECT_EQ(steps_in(folder.path()), (Steps{350, 300, 250, 200, 150, 100}));
  rotate_checkpoints(folder.path(), {.keep_last = 1, .keep_best = 1});
  EXPECT_EQ(steps_in(folder.path()), (Steps{350, 250}));
  EXPECT_EQ(verify_checkpoint(folder / "checkpoint-250").info.metric, 1);
  write_checkpoint(folder / "checkpoint-400", {.step = 400, .metric = 0.5}, write_files);
  rotate_checkpoints(folder.path(), {.keep_last = 1, .keep_best = 1, .greater_is_better = true});
  EXPECT_EQ(steps_in(folder.path()), (Steps{400, 250}));
}

/// transformers' save_total_limit: the newest and the protected one stay even where the limit is one.
TEST(CheckpointFolder, KeepsNoMoreThanTheLimitButTheProtectedOne) {
  const TemporaryFolder folder;
  for (const std::int64_t step : {10, 20, 30, 40}) write_step(folder.path(), step);
  rotate_checkpoints(folder.path(), {.keep_last = 0, .total_limit = 3, .protect = "checkpoint-20"});
  EXPECT_EQ(steps_in(folder.path()), (Steps{40, 30, 20}));
  rotate_checkpoints(folder.path(), {.keep_last = 0, .total_limit = 1, .protect = "checkpoint-20"});
  EXPECT_EQ(steps_in(folder.path()), (Steps{40, 20}));
  rotate_checkpoints(folder.path(), {.keep_last = 0, .total_limit = 1});
  EXPECT_EQ(steps_in(folder.path()), (Steps{40}));
}

}  // namespace
}  // namespace lockstep
