#include "lockstep/datasets/stage.hpp"

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/datasets/distributed/threads_as_ranks.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::run_job;
using testing::TemporaryFolder;
using testing::write_bytes;

const std::vector<std::string> kFourFine(4);

void write_saved(const fs::path& folder) {
  fs::create_directories(folder);
  write_bytes(folder / "data-00000-of-00001.arrow", std::string(500'000, 'a'));
  write_bytes(folder / "state.json", R"({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]})");
  write_bytes(folder / "cache-0123.arrow", "of another pipeline");
}

TEST(Stage, EachNodeGetsOneCopyOfTheListedFiles) {
  const TemporaryFolder shared, nodes[2];
  write_saved(shared / "set");
  ::testing::internal::CaptureStderr();
  const auto outcomes = run_job(4, [&](const DistributedContext& ranks) {
    const auto& disk = nodes[ranks.node];
    EXPECT_EQ(stage(shared / "set", disk / "set", {.ranks = ranks}), disk / "set");
    EXPECT_TRUE(fs::exists(disk / "set" / "state.json")) << "whole when anybody returns";
  });
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(outcomes, kFourFine);
  EXPECT_TRUE(testing::contains_all(
      told, {"lockstep [rank 0]: staged 2 files", "lockstep [rank 2]: staged 2 files"}));
  for (const auto& node : nodes) {
    EXPECT_EQ(node.files(), std::vector<std::string>{"set"});
    EXPECT_FALSE(fs::exists(node / "set" / "cache-0123.arrow"));
    EXPECT_EQ(testing::read_bytes(node / "set" / "data-00000-of-00001.arrow"), std::string(500'000, 'a'));
  }
}

/// What was read from a text file is written anew: the file itself is no Arrow file.
TEST(Stage, DataSetsOfTextFilesAreStagedAsTheirRows) {
  const TemporaryFolder shared, disk;
  write_bytes(shared / "x.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": 2}\n");
  write_bytes(shared / "x.csv", "text,label\na,1\nb,2\n");
  write_bytes(shared / "x.txt", "a\nb\n");
  for (const auto* name : {"x.jsonl", "x.csv", "x.txt"}) {
    const auto loaded = ArrowDataset::load(shared / name);
    const auto staged = stage(loaded, disk / name, {.report = false});
    EXPECT_EQ(staged.features(), loaded.features()) << name;
    ASSERT_EQ(staged.num_rows(), 2) << name;
    for (std::int64_t row = 0; row < 2; ++row)
      EXPECT_EQ(staged.row(row).value(), loaded.row(row).value()) << name;
    for (const auto& file : staged.files())
      EXPECT_TRUE(file.string().starts_with(disk.path().string())) << file;
  }
  // Beside rows of a mapped file too.
  const auto loaded = ArrowDataset::load(shared / "x.jsonl");
  loaded.to_arrow(shared / "x.arrow");
  const auto both = ArrowDataset::concatenate({ArrowDataset::load(shared / "x.arrow"), loaded});
  EXPECT_EQ(stage(both, disk / "both", {.report = false}).num_rows(), 4);
}

TEST(Stage, AFailureOfOneNodeReachesAllRanks) {
  const TemporaryFolder shared, disk;
  write_saved(shared / "set");
  write_bytes(disk / "file", "");
  const auto outcomes = run_job(4, [&](const DistributedContext& ranks) {
    stage(shared / "set", ranks.node == 0 ? disk / "set" : disk / "file" / "set",
          {.ranks = ranks, .report = false});
  });
  for (const int rank : {0, 1, 2, 3}) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(testing::contains_all(outcome, {(disk / "file").string()}));
  }
  EXPECT_TRUE(testing::contains_all(outcomes[3], {"rank 3 ends because rank 2"}));
}

}  // namespace
}  // namespace lockstep
