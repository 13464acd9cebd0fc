#include "datasets/cache/staging.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "core/checksum.hpp"
#include "core/prepared_list.hpp"
#include "datasets/cache/cache_entry.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/world.hpp"
#include "lockstep/datasets/prepare.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

std::string many_bytes(std::size_t bytes, char seed) {
  std::string text(bytes, seed);
  for (std::size_t i = 0; i < bytes; i += 7)
    text[i] = static_cast<char>(i * 31 + static_cast<unsigned char>(seed));
  return text;
}

/// What save_to_disk writes, as far as its list goes, and files that do not belong to it.
void write_saved(const fs::path& folder) {
  fs::create_directories(folder);
  write_bytes(folder / "data-00000-of-00002.arrow", many_bytes(300'000, 'a'));
  write_bytes(folder / "data-00001-of-00002.arrow", many_bytes(20, 'b'));
  write_bytes(folder / "state.json", R"({"_data_files": [{"filename": "data-00000-of-00002.arrow"},
    {"filename": "data-00001-of-00002.arrow"}], "_fingerprint": "x"})");
  write_bytes(folder / "dataset_info.json", "{}");
  write_bytes(folder / "cache-0123.arrow", "of another pipeline");
}

/// An entry of map's cache with one shard.
fs::path write_entry(const fs::path& folder, const std::string& bytes) {
  fs::create_directories(folder);
  const CachedShard shard{
      .number = 0, .rows = 3, .crc32c = crc32c(bytes.data(), bytes.size()), .bytes = bytes.size()};
  write_bytes(folder / shard.file_name(), bytes);
  write_manifest(folder, {.key = folder.filename(),
                          .name = "tokenize",
                          .fields = {},
                          .time = "",
                          .complete = true,
                          .shard_count = 1,
                          .seconds = 0,
                          .shards = {shard}});
  write_bytes(folder / "use.elsewhere.1.0", "");
  return folder / shard.file_name();
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& each : fs::recursive_directory_iterator(folder)) {
    if (each.is_regular_file()) names.push_back(each.path().lexically_relative(folder));
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Staging, CopiesJustTheFilesOfTheList) {
  const TemporaryFolder folder;
  write_saved(folder / "set");
  const auto plan = plan_staging(folder / "set");
  const auto result = stage_files(plan, folder / "node" / "set");
  EXPECT_TRUE(result.copied);
  EXPECT_EQ(result.files, 4U);
  EXPECT_EQ(
      names_in(folder / "node"),
      (std::vector<std::string>{"set/.lockstep-staged.json", "set/data-00000-of-00002.arrow",
                                "set/data-00001-of-00002.arrow", "set/dataset_info.json", "set/state.json"}));
  for (const auto& file : plan.files)
    EXPECT_EQ(read_bytes(folder / "set" / file.path), read_bytes(folder / "node" / "set" / file.path));
  EXPECT_TRUE(testing::contains_all(staging_text(result), {"staged 4 files, 293.", "KiB in ", "/s) to '"}));
}

TEST(Staging, ASecondCallCopiesNothing) {
  const TemporaryFolder folder;
  write_saved(folder / "set");
  stage_files(plan_staging(folder / "set"), folder / "copy");
  const auto before = fs::last_write_time(folder / "copy");
  const auto again = stage_files(plan_staging(folder / "set"), folder / "copy/");
  EXPECT_FALSE(again.copied);
  EXPECT_EQ(again.folder, folder / "copy");
  EXPECT_EQ(fs::last_write_time(folder / "copy"), before);
  // A source that has changed, and a copy that has lost something, are copied again.
  write_bytes(folder / "set" / "dataset_info.json", "{\"changed\": true}");
  EXPECT_TRUE(stage_files(plan_staging(folder / "set"), folder / "copy").copied);
  fs::resize_file(folder / "copy" / "data-00001-of-00002.arrow", 3);
  EXPECT_TRUE(stage_files(plan_staging(folder / "set"), folder / "copy").copied);
  EXPECT_EQ(read_bytes(folder / "copy" / "data-00001-of-00002.arrow"), many_bytes(20, 'b'));
}

/// Of the same size, and with the same mtime, as a program that restores times leaves it.
TEST(Staging, AFileThatWasReplacedIsCopiedAgain) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "set");
  const auto file = folder / "set" / "a.txt";
  write_bytes(file, "old");
  stage_files(plan_staging(file), folder / "copy");
  const auto time = fs::last_write_time(file);
  // The clock of a file system ticks every few milliseconds.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  write_bytes(file, "new");
  fs::last_write_time(file, time);
  EXPECT_TRUE(stage_files(plan_staging(file), folder / "copy").copied);
  EXPECT_EQ(read_bytes(folder / "copy" / "a.txt"), "new");
  write_bytes(folder / "other", "cut");
  fs::last_write_time(folder / "other", time);
  fs::rename(folder / "other", file);
  EXPECT_TRUE(stage_files(plan_staging(file), folder / "copy").copied);
  EXPECT_EQ(read_bytes(folder / "copy" / "a.txt"), "cut");
}

TEST(Staging, TakesDatasetDictsCacheEntriesFilesAndWholeFolders) {
  const TemporaryFolder folder;
  write_saved(folder / "dict" / "train");
  write_saved(folder / "dict" / "test");
  write_bytes(folder / "dict" / "dataset_dict.json", R"({"splits": ["train", "test"]})");
  EXPECT_EQ(plan_staging(folder / "dict").files.size(), 9U);
  EXPECT_EQ(stage_files(plan_staging(folder / "dict"), folder / "copy").files, 9U);
  EXPECT_TRUE(fs::exists(folder / "copy" / "test" / "state.json"));

  write_entry(folder / "entry", many_bytes(1000, 'x'));
  EXPECT_EQ(plan_staging(folder / "entry").files.size(), 2U);
  EXPECT_TRUE(stage_files(plan_staging(folder / "entry"), folder / "entry copy").copied);

  EXPECT_EQ(plan_staging(folder / "dict" / "train" / "state.json").files.size(), 1U);
  EXPECT_EQ(plan_staging(folder / "dict", true).files.size(), 11U);
  fs::create_directories(folder / "plain");
  EXPECT_THROWS(plan_staging(folder / "plain"), UsageError, "--all");
  EXPECT_THROWS(plan_staging(folder / "nothing"), DataError, (folder / "nothing").string());
}

TEST(Staging, ListsThatLieAreRefused) {
  const TemporaryFolder folder;
  write_saved(folder / "set");
  const auto with_list = [&](const std::string& text) {
    write_bytes(folder / "set" / "state.json", text);
    return plan_staging(folder / "set");
  };
  EXPECT_THROWS(with_list(R"({"_data_files": [{"filename": "../x"}]})"), DataError, "state.json", "'../x'");
  EXPECT_THROWS(with_list(R"({"_data_files": [{"filename": "/etc/passwd"}]})"), DataError, "'/etc/passwd'");
  EXPECT_THROWS(with_list(R"({"_data_files": [{"filename": "gone.arrow"}]})"), DataError, "gone.arrow");
  EXPECT_THROWS(with_list(R"({"_data_files": 3})"), DataError, "_data_files");
  EXPECT_THROWS(with_list("[]"), DataError, "not a JSON object");
  EXPECT_THROWS(with_list("{"), DataError, "state.json");
}

TEST(Staging, ADamagedSourceIsNotStaged) {
  const TemporaryFolder folder;
  const fs::path shard = write_entry(folder / "entry", many_bytes(100'000, 'x'));
  std::string bytes = read_bytes(shard);
  bytes[5000] ^= 1;
  write_bytes(shard, bytes);
  EXPECT_THROWS(stage_files(plan_staging(folder / "entry"), folder / "copy"), DataError, "has the checksum",
                shard.filename().string());
  EXPECT_EQ(folder.files(), std::vector<std::string>{"entry"}) << "nothing is left";
}

TEST(Staging, AFolderThatIsNotACopyIsNotReplaced) {
  const TemporaryFolder folder;
  write_saved(folder / "set");
  fs::create_directories(folder / "mine");
  write_bytes(folder / "mine" / "thesis", "years of work");
  EXPECT_THROWS(stage_files(plan_staging(folder / "set"), folder / "mine"), UsageError,
                "is not a staged copy");
  EXPECT_EQ(read_bytes(folder / "mine" / "thesis"), "years of work");
  EXPECT_THROWS(stage_files(plan_staging(folder / "set"), folder / "set" / "copy"), UsageError,
                "is inside the source");
}

TEST(Staging, OneFileMayBeCopiedBesideItself) {
  const TemporaryFolder folder;
  write_bytes(folder / "rows.txt", "one\ntwo\n");
  const auto result = stage_files(plan_staging(folder / "rows.txt"), folder / "copy");
  EXPECT_TRUE(result.copied);
  EXPECT_EQ(read_bytes(folder / "copy" / "rows.txt"), "one\ntwo\n");
}

TEST(Staging, OneOfManyProcessesCopies) {
  const TemporaryFolder folder;
  write_saved(folder / "set");
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(fork());
    if (children.back() == 0)
      _exit(stage_files(plan_staging(folder / "set"), folder / "copy").copied ? 1 : 0);
  }
  int copied = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    copied += WEXITSTATUS(status);
  }
  EXPECT_EQ(copied, 1);
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"copy", "set"}));
}

TEST(Staging, AKilledCopyIsCleanedByTheNext) {
  const TemporaryFolder folder;
  write_saved(folder / "set");
  const pid_t child = fork();
  if (child == 0) {
    // Asked while the copies are made.
    stage_files(plan_staging(folder / "set"), folder / "copy", {.stop = [] { return raise(SIGKILL) != 0; }});
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::exists(folder / "copy"));
  EXPECT_TRUE(fs::exists(folder / "copy.staging"));
  EXPECT_TRUE(stage_files(plan_staging(folder / "set"), folder / "copy").copied);
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"copy", "set"}));
}

TEST(Staging, AStoppedCopyLeavesNothing) {
  const TemporaryFolder folder;
  for (int i = 0; i < 50; ++i) {
    fs::create_directories(folder / "set");
    write_bytes(folder / "set" / std::to_string(i), many_bytes(2'000'000, 'a'));
  }
  EXPECT_THROWS(stage_files(plan_staging(folder / "set", true), folder / "copy",
                            {.threads = 1, .stop = [] { return true; }}),
                Error, "was stopped");
  EXPECT_EQ(folder.files(), std::vector<std::string>{"set"});
}

TEST(Staging, WhatDoesNotFitStaysWhereItIs) {
  const TemporaryFolder folder, disk;
  if (mount("none", disk.path().c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "only root can make a small disk";
  write_saved(folder / "set");
  const auto fits = stage_files(plan_staging(folder / "set"), disk / "copy");
  const auto large = stage_files(plan_staging(folder / "set"), disk / "other", {.reserve = 1 << 20});
  EXPECT_EQ(disk.files(), std::vector<std::string>{"copy"});
  umount2(disk.path().c_str(), MNT_DETACH);
  EXPECT_TRUE(fits.copied) << "through memory, for the disks differ";
  EXPECT_FALSE(large.copied);
  EXPECT_EQ(large.folder, fs::canonical(folder / "set"));
  EXPECT_TRUE(testing::contains_all(large.warning, {"do not fit", disk.path().string(), "to stay free"}));
}

TEST(Staging, DefaultPlaces) {
  const std::string name = "lockstep-" + std::to_string(getuid()) + "/set-";
  const Environment slurm{{"SLURM_TMPDIR", "/local/7"}, {"TMPDIR", "/t"}};
  EXPECT_TRUE(default_staging_folder("/data/set", slurm).string().starts_with("/local/7/" + name));
  EXPECT_TRUE(default_staging_folder("/data/set", {{"TMPDIR", "/t"}}).string().starts_with("/t/" + name));
  EXPECT_TRUE(default_staging_folder("/data/set", {}).string().starts_with("/tmp/" + name));
  EXPECT_NE(default_staging_folder("/data/set", slurm), default_staging_folder("/other/set", slurm));
}

/// In /tmp everybody can make a folder of a name that is known beforehand.
TEST(Staging, TheUsersOwnFolderIsNobodyElses) {
  const TemporaryFolder folder, disk;
  write_saved(folder / "set");
  const auto plan = plan_staging(folder / "set");
  const fs::path own = disk / ("lockstep-" + std::to_string(getuid()));
  EXPECT_TRUE(stage_files(plan, own / "set").copied);
  EXPECT_EQ(fs::status(own).permissions(), fs::perms::owner_all);
  EXPECT_FALSE(stage_files(plan, own / "set").copied);
  fs::permissions(own, fs::perms::all);
  EXPECT_THROWS(stage_files(plan, own / "set"), Error, own.string(), "mode 0777", "0700", "chmod 700",
                "TMPDIR");
  fs::remove_all(own);
  fs::create_directory(disk / "elsewhere");
  fs::create_directory_symlink(disk / "elsewhere", own);
  EXPECT_THROWS(stage_files(plan, own / "set"), Error, own.string(), "something else");
  fs::remove(own);
  if (getuid() != 0) GTEST_SKIP() << "only root can give a folder to another user";
  fs::create_directory(own);
  fs::permissions(own, fs::perms::owner_all);
  ASSERT_EQ(chown(own.c_str(), 65534, 65534), 0);
  EXPECT_THROWS(stage_files(plan, own / "set"), Error, "of user 65534");
}

TEST(Prepare, IsAWorldOfOneWhateverTheSchedulerSays) {
  Environment task{
      {"RANK", "3"},        {"WORLD_SIZE", "8"},   {"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "8"},
      {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29"}, {"PATH", "/bin"},    {"TORCHELASTIC_RUN_ID", "x"}};
  const Environment environment = preparing_environment(task);
  const World world = World::from_environment(environment);
  EXPECT_EQ(world.world_size, 1);
  EXPECT_EQ(world.run_id, "");
  EXPECT_EQ(world.master_addr, "");
  EXPECT_EQ(environment.at("PATH"), "/bin");
  EXPECT_TRUE(preparing(environment));
  EXPECT_FALSE(preparing(task));
  EXPECT_FALSE(preparing({{"LOCKSTEP_PREPARE", "0"}}));
}

}  // namespace
}  // namespace lockstep
