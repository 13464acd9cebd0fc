#include <gtest/gtest.h>
#include <stdlib.h>

#include <thread>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/cache_folder.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

/// Files above the size from which they go into the cache, which is a folder of the test's.
class Ingest : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("LOCKSTEP_CACHE", (folder_ / "cache").c_str(), 1); }
  void TearDown() override { ::unsetenv("LOCKSTEP_CACHE"); }

  std::filesystem::path write(const std::string& name, const std::string& text) const {
    testing::write_bytes(folder_ / name, text);
    return folder_ / name;
  }

  std::size_t entries() const { return list_cache(folder_ / "cache").size(); }

  testing::TemporaryFolder folder_;
};

constexpr int kRows = 100'000;

/// Numbers, and from row `first_real` on one with a point.
std::string json_lines(int first_real) {
  std::string text;
  for (int row = 0; row < kRows; ++row) {
    text += "{\"id\": " + std::to_string(row) + ", \"x\": " + std::to_string(row) +
            (row >= first_real ? ".5" : "") + ", \"text\": \"" + std::string(50 + row % 50, 'a') + "\"}\n";
  }
  return text;
}

TEST_F(Ingest, LargeFilesAreMappedFromTheCacheAndFoundThereAgain) {
  const auto path = write("a.jsonl", json_lines(kRows));
  const auto data = ArrowDataset::load(path);
  ASSERT_EQ(data.num_rows(), kRows);
  EXPECT_EQ(data.column<std::int64_t>("x")[kRows - 1], kRows - 1);
  EXPECT_EQ(data.column<std::string_view>("text")[77].size(), 77U);
  ASSERT_EQ(data.files().size(), 1U);
  EXPECT_TRUE(data.files()[0].string().starts_with((folder_ / "cache").string())) << data.files()[0];
  EXPECT_EQ(entries(), 1U);
  // The same bytes under another name.
  std::filesystem::rename(path, folder_ / "b.jsonl");
  EXPECT_EQ(ArrowDataset::load(folder_ / "b.jsonl").files(), data.files());
  EXPECT_EQ(entries(), 1U);
}

TEST_F(Ingest, TypesOfALaterRowCount) {
  const auto data = ArrowDataset::load(write("a.jsonl", json_lines(kRows - 1)));
  EXPECT_EQ(data.column<double>("x")[3], 3.0);
  EXPECT_EQ(data.column<double>("x")[kRows - 1], kRows - 0.5);
  std::string csv = "a,b\n";
  for (int row = 0; row < 1'000'000; ++row) csv += "1234," + std::to_string(row) + "\n";
  const auto numbers = ArrowDataset::load(write("a.csv", csv));
  EXPECT_EQ(numbers.column<std::int64_t>("a")[999'999], 1234);
  const auto texts = ArrowDataset::load(write("b.csv", csv + "x,1\n"));
  EXPECT_EQ(texts.column<std::string_view>("a")[5], "1234");
  EXPECT_EQ(texts.column<std::int64_t>("b")[1'000'000], 1);
}

TEST_F(Ingest, ErrorsNameTheLineAndLeaveNoEntry) {
  const auto text = json_lines(kRows);
  EXPECT_THROWS((ArrowDataset::load(write("a.jsonl", text + "{\"id\": \"x\"}\n"))), DataError, "line 100001",
                "'id'", "string");
  EXPECT_THROWS((ArrowDataset::load(write("a.jsonl", text + "{\"id\": \n"))), DataError, "a.jsonl",
                "line 100001");
  EXPECT_THROWS((ArrowDataset::load(write("a.txt", std::string(9 << 20, 'a') + "\n\xFF\n"))), DataError,
                "line 2");
  for (const auto& each : std::filesystem::directory_iterator(folder_ / "cache"))
    EXPECT_EQ(each.path().filename(), "hashes");
}

TEST_F(Ingest, ThoseWhoComeTogetherWriteItOnce) {
  const auto path = write("a.jsonl", json_lines(kRows));
  std::vector<std::filesystem::path> files(4);
  {
    std::vector<std::jthread> threads;
    for (auto& file : files) threads.emplace_back([&] { file = ArrowDataset::load(path).files().at(0); });
  }
  for (const auto& file : files) EXPECT_EQ(file, files[0]);
  EXPECT_EQ(entries(), 1U);
}

TEST_F(Ingest, PatternsNameFilesInOrder) {
  write("p-2.csv", "a\n2\n");
  write("p-1.csv", "a\n1\n");
  const auto data = ArrowDataset::load(folder_ / "p-*.csv");
  EXPECT_EQ(data.column<std::int64_t>("a").to_vector(), (std::vector<std::int64_t>{1, 2}));
  EXPECT_THROWS((ArrowDataset::load(folder_ / "q-*.csv")), DataError, "q-*.csv");
}

}  // namespace
}  // namespace lockstep
