#include <gtest/gtest.h>
#include <stdlib.h>

#include <thread>

#include "datasets/cache/cache_folder.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/map.hpp"
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

TEST_F(Ingest, ProcessesThatLoadAtTheSameTimeWriteItOnce) {
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

/// The bytes of hexadecimal digits.
std::string bytes_of(std::string_view digits) {
  std::string bytes;
  for (std::size_t place = 0; place < digits.size(); place += 2)
    bytes += static_cast<char>(std::stoi(std::string(digits.substr(place, 2)), nullptr, 16));
  return bytes;
}

// "a,b\n1,x\n2,y\n", by bzip2, lz4 and zstd --long=31, and as inner/a.csv in a ZIP archive made on macOS;
// then an archive of two files.
constexpr const char* kBzip2 =
    "425a6839314159265359bcc728450000045980001000043000300000602000310c0823419a8e0422178bb9229c28485e"
    "63942280";
constexpr const char* kLz4 = "04224d186040820c000080612c620a312c780a322c790a00000000";
constexpr const char* kZstd = "28b52ffd04a8610000612c620a312c780a322c790a2e9f2146";
constexpr const char* kZip =
    "504b0304140000000800e2197b5d65eb13170500000003000000160000005f5f4d41434f53582f696e6e65722f2e5f61"
    "2e637376cb4d4c0600504b030414000000080000002158c2967e9d0e0000000c0000000b000000696e6e65722f612e63"
    "73764bd449e232d4a9e032d2a9e40200504b01021403140000000800e2197b5d65eb1317050000000300000016000000"
    "00000000000000008001000000005f5f4d41434f53582f696e6e65722f2e5f612e637376504b01021403140000000800"
    "00002158c2967e9d0e0000000c0000000b0000000000000000000000800139000000696e6e65722f612e637376504b05"
    "0600000000020002007d000000700000000000";
constexpr const char* kZipOfTwo =
    "504b0304140000000000000021580024c189040000000400000005000000612e637376610a310a504b03041400000000"
    "00000021580024c189040000000400000005000000622e637376610a310a504b01021403140000000000000021580024"
    "c1890400000004000000050000000000000000000000800100000000612e637376504b01021403140000000000000021"
    "580024c1890400000004000000050000000000000000000000800127000000622e637376504b05060000000002000200"
    "660000004e0000000000";

TEST_F(Ingest, WhatProgramsCompressIsRead) {
  const auto expect_rows = [&](const std::filesystem::path& path) {
    const auto data = ArrowDataset::load(path);
    ASSERT_EQ(data.num_rows(), 2) << path;
    EXPECT_EQ(data[1].value().to_json(), R"({"a": 2, "b": "y"})") << path;
  };
  expect_rows(write("a.csv.bz2", bytes_of(kBzip2)));
  expect_rows(write("a.csv.lz4", bytes_of(kLz4)));
  expect_rows(write("a.csv.zst", bytes_of(kZstd)));
  expect_rows(write("A.CSV.ZIP", bytes_of(kZip)));
  expect_rows(write("kaggle.zip", bytes_of(kZip)));
  EXPECT_THROWS(ArrowDataset::load(write("two.zip", bytes_of(kZipOfTwo))), DataError, "two.zip", "2 files",
                "'a.csv', 'b.csv'", "unzip");
  for (const auto& bytes : {std::string("no archive"), bytes_of(kZip).substr(0, 150)})
    EXPECT_THROWS(ArrowDataset::load(write("cut.zip", bytes)), DataError, "cut.zip",
                  "not a whole ZIP archive");
  // The checksum in the directory.
  auto other = bytes_of(kZip);
  other[other.rfind("PK\x01\x02") + 16] ^= 1;
  EXPECT_THROWS(ArrowDataset::load(write("other.zip", other)), DataError, "other.zip", "damaged");
  EXPECT_THROWS(ArrowDataset::load(write("a.csv.xz", "x")), DataError, "a.csv.xz", "xz -dk");
  EXPECT_THROWS(ArrowDataset::load(write("a.7z", "x")), DataError, "a.7z", "7z x");
  EXPECT_THROWS(ArrowDataset::load(write("data", bytes_of(kBzip2))), DataError, "compressed", "'.bz2'");
}

/// Bytes of another encoding, which no JSON holds: the cache names the file.
TEST_F(Ingest, FileNamesMayHaveAnyBytes) {
  const auto data = ArrowDataset::load(write("caf\xe9.csv.zst", bytes_of(kZstd)));
  EXPECT_EQ(data.num_rows(), 2);
  ASSERT_EQ(entries(), 1U);
  EXPECT_EQ(list_cache(folder_ / "cache")[0].manifest.name, "load caf\\xe9.csv.zst");
  data.save_to_disk(folder_ / "\xff");
  EXPECT_EQ(ArrowDataset::load(folder_ / "\xff").fingerprint(), data.fingerprint());
  MapOptions options;
  options.input_files = {folder_ / "caf\xe9.csv.zst"};
  options.progress = false;
  EXPECT_EQ(map(
                data, [](const MapBatch& batch) { return batch.rows.columns(); }, options)
                .num_rows(),
            2);
  EXPECT_EQ(entries(), 2U);
}

}  // namespace
}  // namespace lockstep
