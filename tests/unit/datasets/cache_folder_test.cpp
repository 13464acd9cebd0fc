#include "datasets/cache/cache_folder.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::TemporaryFolder;

CacheManifest manifest_of(const std::string& key, const std::string& length) {
  return {.key = key,
          .name = "tokenize",
          .fields = {{"source", "\"abc\""}, {"version", "\"1\""}, {"parameters.max_length", length}},
          .time = "2026-11-21T19:30:00Z",
          .complete = true,
          .shard_count = 2,
          .seconds = 1.5,
          .shards = {{0, 10, 0x1234, 100}, {1, 5, 0xabcdef01, 50}}};
}

/// An entry with shards of the sizes that its manifest says, last used `age` ago.
void make_entry(const TemporaryFolder& cache, const CacheManifest& manifest, std::chrono::hours age = 0h) {
  const auto folder = cache / manifest.key;
  std::filesystem::create_directories(folder);
  for (const auto& shard : manifest.shards)
    testing::write_bytes(folder / shard.file_name(), std::string(shard.bytes, 'x'));
  write_manifest(folder, manifest);
  std::filesystem::last_write_time(folder / "manifest.json",
                                   std::filesystem::file_time_type::clock::now() - age);
}

std::vector<std::string> keys_of(const TemporaryFolder& cache) {
  std::vector<std::string> keys;
  for (const auto& entry : list_cache(cache.path())) keys.push_back(entry.manifest.key);
  return keys;
}

TEST(CacheEntry, ShardNamesSayWhatIsInThem) {
  const CachedShard shard{.number = 12, .rows = 1000, .crc32c = 0xab, .bytes = 7};
  EXPECT_EQ(shard.file_name(), "shard-00012.rows-1000.crc32c-000000ab.arrow");
  const auto parsed = parse_shard_name(shard.file_name());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->number, 12U);
  EXPECT_EQ(parsed->rows, 1000U);
  EXPECT_EQ(parsed->crc32c, 0xabU);
  for (const char* other : {"shard-00012.arrow", "shard-12.rows-1000.crc32c-000000ab.arrow", "manifest.json",
                            "shard-00012.rows-1000.crc32c-000000ab.arrow.tmp", "shard-.rows-.crc32c-.arrow"})
    EXPECT_FALSE(parse_shard_name(other)) << other;
}

TEST(CacheEntry, AManifestComesBackAsItWas) {
  const auto manifest = manifest_of("k1", "128");
  const auto back = parse_manifest(manifest_text(manifest), "a place");
  EXPECT_EQ(manifest_text(back), manifest_text(manifest));
  EXPECT_EQ(back.rows(), 15U);
  EXPECT_EQ(back.bytes(), 150U);
  EXPECT_EQ(back.fields.at("parameters.max_length"), "128");
}

TEST(CacheEntry, ADamagedManifestIsRefusedWithItsName) {
  for (const char* text : {"", "{", "[]", "{\"format\": \"other\"}", "{\"format\": \"lockstep-cache\"}"})
    EXPECT_THROWS(parse_manifest(text, "cache/k1/manifest.json"), DataError, "cache/k1/manifest.json");
}

TEST(CacheFolder, DefaultsFollowTheEnvironment) {
  EXPECT_EQ(default_cache_folder({{"HOME", "/h"}}), "/h/.cache/lockstep");
  EXPECT_EQ(default_cache_folder({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}), "/x/lockstep");
  EXPECT_EQ(default_cache_folder({{"XDG_CACHE_HOME", "/x"}, {"LOCKSTEP_CACHE", "/l"}}), "/l");
  EXPECT_THROWS(default_cache_folder({}), UsageError, "LOCKSTEP_CACHE");
  EXPECT_EQ(default_cache_limit({}), 0U);
  EXPECT_EQ(default_cache_limit({{"LOCKSTEP_CACHE_LIMIT", "3G"}}), std::uint64_t{3} << 30);
  for (const char* text : {"many", "3GB", "-1", "20000000T"})
    EXPECT_THROWS(default_cache_limit({{"LOCKSTEP_CACHE_LIMIT", text}}), UsageError, text);
}

TEST(CacheFolder, ListsWhatWasUsedLastFirst) {
  const TemporaryFolder cache;
  make_entry(cache, manifest_of("old", "1"), 5h);
  make_entry(cache, manifest_of("new", "2"), 1h);
  testing::write_bytes(cache / "stranger", "");
  std::filesystem::create_directories(cache / "folder");
  EXPECT_EQ(keys_of(cache), (std::vector<std::string>{"new", "old"}));
  EXPECT_EQ(list_cache(cache.path()).front().rows, 15U);
  { const CacheUse use(cache / "old"); }
  EXPECT_EQ(keys_of(cache), (std::vector<std::string>{"old", "new"}));
  EXPECT_TRUE(list_cache(cache / "nothing").empty());
}

TEST(CacheFolder, EvictsWhatWasNotUsedForLongest) {
  const TemporaryFolder cache;
  for (int age = 1; age <= 4; ++age)
    make_entry(cache, manifest_of("k" + std::to_string(age), "1"), std::chrono::hours(age));
  const auto one = list_cache(cache.path()).front().bytes;
  EXPECT_TRUE(evict(cache.path(), 0, one, "").empty()) << "no limit";
  EXPECT_TRUE(evict(cache.path(), 5 * one, one, "").empty()) << "there is room";
  const CacheUse reader(cache / "k4");
  // The time of use is now, so it would go last anyway; put it back to be the first.
  std::filesystem::last_write_time(cache / "k4" / "manifest.json",
                                   std::filesystem::file_time_type::clock::now() - 9h);
  // The mark takes some bytes too.
  EXPECT_EQ(evict(cache.path(), 4 * one + one / 2, one, "k3"), std::vector<std::string>{"k2"});
  const auto lease = LeaseAcquirer(cache / "k1").try_take();
  EXPECT_TRUE(evict(cache.path(), 1, one, "k3").empty()) << "k1 is written, k3 kept, k4 read";
  EXPECT_EQ(keys_of(cache).size(), 3U);
}

TEST(CacheFolder, WhatIsInUseIsNotRemoved) {
  const TemporaryFolder cache;
  make_entry(cache, manifest_of("k1", "1"));
  {
    const CacheUse reader(cache / "k1");
    EXPECT_THROWS(remove_entry(list_cache(cache.path()).front()), UsageError, "a process reads it");
  }
  {
    const auto lease = LeaseAcquirer(cache / "k1").try_take();
    EXPECT_THROWS(remove_entry(list_cache(cache.path()).front()), UsageError,
                  std::to_string(getpid()) + " writes it");
  }
  remove_entry(list_cache(cache.path()).front());
  EXPECT_TRUE(cache.files().empty());
}

/// Between the look at an entry and its removal.
TEST(CacheFolder, AReaderThatOpensAfterTheCheckKeepsTheEntry) {
  const TemporaryFolder cache;
  make_entry(cache, manifest_of("k1", "128"));
  const CacheEntry looked_at = list_cache(cache.path()).front();
  {
    const CacheUse use(cache / "k1");
    EXPECT_THROWS(remove_entry(looked_at), UsageError, "in use");
    EXPECT_EQ(keys_of(cache), std::vector<std::string>{"k1"});
  }
  remove_entry(looked_at);
  EXPECT_EQ(cache.files(), std::vector<std::string>());
}

TEST(CacheFolder, AReaderThatWasKilledHoldsNothing) {
  const TemporaryFolder cache;
  make_entry(cache, manifest_of("k1", "1"));
  const pid_t child = fork();
  if (child == 0) {
    const CacheUse reader(cache / "k1");
    raise(SIGKILL);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(hold_on(list_cache(cache.path()).front()), "");
}

TEST(CacheFolder, ExplainsWhatChanged) {
  auto later = manifest_of("k2", "256");
  later.time = "2026-11-22T00:00:00Z";
  later.fields["input_files.vocab"] = "\"ff\"";
  const std::string text = explain_entries({later, manifest_of("k1", "128")});
  EXPECT_TRUE(testing::contains_all(
      text, {"tokenize  k1", "source: \"abc\"", "these differ from k1", "parameters.max_length: 128 -> 256",
             "input_files.vocab: (none) -> \"ff\""}));
  EXPECT_LT(text.find("k1"), text.find("k2"));
}

}  // namespace
}  // namespace lockstep
