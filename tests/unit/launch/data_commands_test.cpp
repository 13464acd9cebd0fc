#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "datasets/cache/cache_folder.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/launch/launcher_process.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using testing::contains_all;
using testing::TemporaryFolder;

void make_entry(const fs::path& cache, const std::string& key, const std::string& length) {
  const CachedShard shard{.number = 0, .rows = 12, .crc32c = 1, .bytes = 2048};
  fs::create_directories(cache / key);
  testing::write_bytes(cache / key / shard.file_name(), std::string(2048, 'x'));
  write_manifest(cache / key, {.key = key,
                               .name = "tokenize",
                               .fields = {{"version", "\"3\""}, {"parameters.max_length", length}},
                               .time = "2026-11-2" + length + "T00:00:00Z",
                               .complete = true,
                               .shard_count = 1,
                               .seconds = 1,
                               .shards = {shard}});
}

TEST(CacheCommand, ListsExplainsAndClears) {
  const TemporaryFolder cache;
  make_entry(cache.path(), "aaaaaaaa11", "1");
  make_entry(cache.path(), "bbbbbbbb22", "2");
  const Environment variables{{"LOCKSTEP_CACHE", cache.path().string()}};
  const auto listed = launch({"cache", "ls"}, variables);
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_TRUE(contains_all(
      listed.out, {"KEY", "LAST USE", "aaaaaaaa11", "bbbbbbbb22", "tokenize", " 12 ", "2 entries, "}));
  const auto json = nlohmann::json::parse(launch({"cache", "ls", "--json"}, variables).out);
  EXPECT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0]["rows"], 12);
  EXPECT_EQ(json[0]["version"], "3");
  const auto explained = launch({"cache", "explain", "tokenize", "--dir", cache.path().string()});
  EXPECT_TRUE(contains_all(explained.out, {"these differ from aaaaaaaa11", "parameters.max_length: 1 -> 2"}));
  EXPECT_EQ(launch({"cache", "clear", "aaaaaa"}, variables).status, 0);
  EXPECT_EQ(cache.files(), std::vector<std::string>{"bbbbbbbb22"});
  for (const char* age : {"1h", "99999d", "1000000000w"})
    EXPECT_EQ(launch({"cache", "clear", "--older-than", age}, variables).status, 0);
  EXPECT_EQ(cache.files().size(), 1U) << "it was used a moment ago";
}

TEST(CacheCommand, LeavesWhatIsInUse) {
  const TemporaryFolder cache;
  make_entry(cache.path(), "aaaaaaaa11", "1");
  const auto lease = LeaseAcquirer(cache / "aaaaaaaa11").try_take();
  const auto cleared = launch({"cache", "clear", "--all", "--dir", cache.path().string()});
  EXPECT_EQ(cleared.status, 1);
  EXPECT_TRUE(contains_all(cleared.err, {"aaaaaaaa11", "pid " + std::to_string(getpid()) + " writes it"}));
  EXPECT_EQ(cache.files().size(), 1U);
}

TEST(CacheCommand, RefusesWrongWords) {
  const TemporaryFolder cache;
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"cache"},
           {"cache", "list"},
           {"cache", "clear"},
           {"cache", "explain"},
           {"cache", "explain", "nothing"},
           {"cache", "clear", "--all", "--older-than", "soon"},
       }) {
    const auto refused = launch(words, {{"LOCKSTEP_CACHE", cache.path().string()}});
    EXPECT_EQ(refused.status, 2) << words.back();
    EXPECT_TRUE(contains_all(refused.err, {"lockstep cache: "})) << words.back();
  }
}

TEST(StageCommand, CopiesToTheNodesDisk) {
  const TemporaryFolder folder;
  make_entry(folder / "cache", "aaaaaaaa11", "1");
  const std::string source = folder / "cache" / "aaaaaaaa11";
  fs::create_directories(folder / "local");
  const Environment variables{{"SLURM_TMPDIR", (folder / "local").string()}};
  // Its checksum is made up.
  const auto refused = launch({"stage", source}, variables);
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains_all(refused.err, {"lockstep stage: ", "has the checksum"}));
  const auto staged = launch({"stage", "--no-verify", "--print-path", source}, variables);
  EXPECT_EQ(staged.status, 0) << staged.err;
  const fs::path copy = staged.out.substr(0, staged.out.size() - 1);
  EXPECT_TRUE(copy.string().starts_with((folder / "local").string())) << copy;
  EXPECT_TRUE(fs::exists(copy / "manifest.json"));
  EXPECT_TRUE(contains_all(launch({"stage", "--no-verify", source}, variables).out, {"staged already in"}));
  EXPECT_EQ(launch({"stage"}).status, 2);
  EXPECT_EQ(launch({"stage", folder / "local"}).status, 2) << "it has no list";
}

TEST(PrepareCommand, RunsTheProgramAlone) {
  const ScratchFolder folder;
  const std::string program = folder.write(
      "program", "#!/bin/sh\necho \"$RANK/$WORLD_SIZE $LOCKSTEP_PREPARE $MASTER_ADDR $*\"\nexit 7\n", true);
  const auto done = launch({"prepare", program, "--epochs", "3"},
                           {{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "elsewhere"}});
  EXPECT_EQ(done.status, 7);
  EXPECT_EQ(done.out, "0/1 1  --epochs 3\n");
  EXPECT_EQ(launch({"prepare", program}, {{"SLURM_PROCID", "1"}}).status, 0);
  EXPECT_EQ(launch({"prepare", folder.file("nothing")}).status, 127);
  EXPECT_EQ(launch({"prepare"}).status, 2);
  EXPECT_EQ(launch({"prepare", "--lists", "x"}).status, 2);
}

TEST(PrepareCommand, ListsWhatIsToBeStaged) {
  const TemporaryFolder folder;
  make_entry(folder / "cache", "aaaaaaaa11", "1");
  make_entry(folder / "cache", "bbbbbbbb22", "2");
  make_entry(folder / "cache", "cccccccc33", "3");
  const std::string list = folder / "list", local = folder / "local";
  // What map() does, twice for one of them.
  const std::string script = "for key in aaaaaaaa11 bbbbbbbb22 aaaaaaaa11; do echo '" +
                             (folder / "cache").string() + "'/$key >>$LOCKSTEP_PREPARED_LIST; done";
  for (int times = 0; times < 2; ++times)
    EXPECT_EQ(launch({"prepare", "--list", list, "--", "sh", "-c", script}).status, 0);
  const auto staged = launch({"stage", "--no-verify", "--print-path", "--list", list, local});
  EXPECT_EQ(staged.status, 0) << staged.err;
  EXPECT_EQ(staged.out, local + "\n");
  EXPECT_TRUE(contains_all(staged.err, {"staged 4 files"}));
  const auto entries = list_cache(local);
  EXPECT_EQ(entries.size(), 2U) << "a cache folder with the entries of the list";
  EXPECT_FALSE(fs::exists(fs::path(local) / "cccccccc33"));
  EXPECT_EQ(launch({"stage", "--list", list, local, local}).status, 2);
  EXPECT_EQ(launch({"stage", "--list", folder / "none"}).status, 1);
}

}  // namespace
}  // namespace lockstep::launch
