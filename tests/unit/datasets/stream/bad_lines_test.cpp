#include <arrow/io/compressed.h>
#include <arrow/io/file.h>
#include <arrow/util/compression.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/iterable_dataset.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::contains_all;
using Texts = std::vector<std::string>;

/// Streams that leave out what is broken, with a number of CPUs that the test sets.
class BadLines : public ::testing::Test {
 protected:
  void TearDown() override { ::unsetenv("SLURM_CPUS_PER_TASK"); }

  static void use_cpus(int count) { ::setenv("SLURM_CPUS_PER_TASK", std::to_string(count).c_str(), 1); }

  IterableDataset stream(const std::string& name, const std::string& text,
                         const LoadOptions& options = {}) const {
    testing::write_bytes(folder_ / name, text);
    return IterableDataset::load(folder_ / name, {.load = options, .skip_bad = true});
  }

  static Texts rows(RowStream rows) {
    Texts all;
    while (auto row = rows.next()) all.push_back(Value(*std::move(row)).to_json());
    return all;
  }

  testing::TemporaryFolder folder_;
};

constexpr int kLines = 60'000;

std::string json_lines(int broken, const std::string& with) {
  std::string text;
  for (int line = 1; line <= kLines; ++line) {
    text += line == broken ? with
                           : "{\"id\": " + std::to_string(line) + ", \"text\": \"" +
                                 std::string(line % 100, 'a') + "\"}";
    text += '\n';
  }
  return text;
}

TEST_F(BadLines, OneBrokenLineOfJsonCostsItselfWhateverTheCpus) {
  for (const std::string broken : {"{\"id\": 41", "{\"id\": \"x\", \"text\": \"\"}", "7",
                                   "{\"id\": 1, \"text\": \"\xFF\"}", "{\"id\": {", "}"}) {
    const auto text = json_lines(41'001, broken);
    for (const int cpus : {1, 2, 4}) {
      use_cpus(cpus);
      const auto all = stream("a.jsonl", text);
      const auto found = rows(all.open());
      ASSERT_EQ(found.size(), kLines - 1U) << broken;
      EXPECT_TRUE(found[40'999].starts_with("{\"id\": 41000,")) << found[40'999];
      EXPECT_TRUE(found[41'000].starts_with("{\"id\": 41002,")) << found[41'000];
      const auto bad = all.bad_files();
      ASSERT_EQ(bad.size(), 1U);
      EXPECT_EQ(bad[0].bad_lines, 1);
      EXPECT_FALSE(bad[0].is_abandoned);
      EXPECT_TRUE(contains_all(bad[0].reason, {"a.jsonl", "line 41001"}));
    }
  }
}

TEST_F(BadLines, APassContinuesWithOtherCpus) {
  const auto text = json_lines(41'001, "{\"id\": ");
  use_cpus(1);
  const auto whole = rows(stream("a.jsonl", text).open());
  for (const std::size_t place : {100U, 40'999U, 41'000U, 50'000U}) {
    use_cpus(1);
    auto pass = stream("a.jsonl", text).open();
    for (std::size_t row = 0; row < place; ++row) ASSERT_TRUE(pass.next());
    use_cpus(4);
    const Texts rest(whole.begin() + static_cast<std::ptrdiff_t>(place), whole.end());
    EXPECT_EQ(rows(stream("a.jsonl", text).open(1, 0, pass.state_dict())), rest) << place;
  }
}

TEST_F(BadLines, RanksWithOtherCpusShareTheRows) {
  const auto text = json_lines(41'001, "{\"id\": ");
  std::size_t count = 0;
  Texts all;
  for (int rank = 0; rank < 2; ++rank) {
    use_cpus(1 + 3 * rank);
    const auto mine = rows(split_dataset_by_node(stream("a.jsonl", text), rank, 2).open());
    count += mine.size();
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(count, kLines - 1U);
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
}

/// Wider types come with the same row whatever the CPUs: integers before it, floating numbers behind it.
TEST_F(BadLines, TypesWidenAtTheSameRow) {
  Texts first;
  for (const int cpus : {1, 2, 4}) {
    use_cpus(cpus);
    const auto found = rows(stream("a.jsonl", json_lines(41'001, "{\"id\": 1.5}")).open());
    if (first.empty()) first = found;
    EXPECT_EQ(found.size(), std::size_t{kLines});
    EXPECT_EQ(found, first) << cpus;
  }
}

TEST_F(BadLines, LinesThatDoNotFitAreCountedOnceInEveryEpoch) {
  auto all = stream(
      "a.jsonl", "{\"id\": 1}\n{\"id\": \"x\", \"y\": 1}\n{\"id\": 2.5}\n[]\n{\"id\": 3, \"y\": 2.5}\nx\n");
  const Texts expected = {"{\"id\": 1.0, \"y\": null}", "{\"id\": 2.5, \"y\": null}",
                          "{\"id\": 3.0, \"y\": 2.5}"};
  EXPECT_EQ(rows(all.open()), expected);
  all.set_epoch(1);
  EXPECT_EQ(rows(all.open()), expected);
  ASSERT_EQ(all.bad_files().size(), 1U);
  EXPECT_EQ(all.bad_files()[0].bad_lines, 3);
  EXPECT_TRUE(contains_all(all.bad_files()[0].reason, {"line 2", "'id'", "string"}));
}

TEST_F(BadLines, GivenTypesDecideWhichLinesAreBroken) {
  LoadOptions options;
  options.features = Features({{"id", Feature(DataType(TypeKind::int8))},
                               {"label", Feature::class_label({"no", "yes"})},
                               {"list", Feature(DataType::list(DataType(TypeKind::int8)))}});
  const auto all =
      stream("a.jsonl",
             "{\"id\": 1, \"label\": \"yes\", \"list\": [1, 2]}\n{\"id\": 2, \"label\": \"maybe\"}\n"
             "{\"id\": 3, \"list\": [3, 400]}\n{\"id\": 4, \"label\": 0, \"list\": [5]}\n",
             options);
  EXPECT_EQ(rows(all.open()), (Texts{"{\"id\": 1, \"label\": 1, \"list\": [1, 2]}",
                                     "{\"id\": 4, \"label\": 0, \"list\": [5]}"}));
  EXPECT_EQ(all.bad_files().at(0).bad_lines, 2);
}

TEST_F(BadLines, ABrokenObjectOrListEndsTheFileAfterTheRowsBefore) {
  const std::string pretty = "{\n\"id\": 1\n}\n{\n\"id\": 2\n}\n";
  for (const auto& text : {pretty + "{\n\"id\": [\n", std::string("[{\"id\": 1}, {\"id\": 2}, {\"id\": "),
                           std::string("[{\"id\": 1}, {\"id\": 2}] x")}) {
    const auto all = stream("a.json", text);
    EXPECT_EQ(rows(all.open()), (Texts{"{\"id\": 1}", "{\"id\": 2}"})) << text;
    ASSERT_EQ(all.bad_files().size(), 1U);
    EXPECT_TRUE(all.bad_files()[0].is_abandoned);
  }
  // One that ends is left out alone.
  const auto all = stream("b.json", pretty + "{\n\"id\": tru\n}\n" + "{\n\"id\": 3\n}\n");
  EXPECT_EQ(rows(all.open()), (Texts{"{\"id\": 1}", "{\"id\": 2}", "{\"id\": 3}"}));
  EXPECT_TRUE(contains_all(all.bad_files().at(0).reason, {"line 7"}));
}

TEST_F(BadLines, OneBrokenRowOfCsvCostsItsLineAlone) {
  const auto table = [](const std::string& broken) {
    std::string text = "id,text\n";
    for (int row = 1; row <= 30'000; ++row)
      text += row == 25'001 ? broken : std::to_string(row) + ",\"a \"\"b\"\"\"\n";
    return text;
  };
  struct Case {
    std::string broken;
    std::size_t rows;
    std::int64_t bad;
  };
  const std::vector<Case> cases = {
      {"1,2,3\n", 29'999, 1},
      {"1,\xFF\n", 29'999, 1},
      {"1,\"x\"y\n", 29'999, 1},
      // The quote goes on to the next one, in the next line.
      {"1,\"x\n", 29'999, 1},
      {"1,x\"\n", 30'000, 0},
      // A broken row of two lines: the second one is no row either.
      {"1,\"x\ny\"z\n", 29'999, 2},
      {"1,\"x\ny,2\"z\n", 29'999, 2},
  };
  for (const auto& each : cases) {
    const auto all = stream("a.csv", table(each.broken));
    const auto found = rows(all.open());
    ASSERT_EQ(found.size(), each.rows) << each.broken;
    EXPECT_EQ(found.back(), "{\"id\": 30000, \"text\": \"a \\\"b\\\"\"}");
    EXPECT_EQ(found[24'999], "{\"id\": 25000, \"text\": \"a \\\"b\\\"\"}");
    const auto bad = all.bad_files();
    ASSERT_EQ(bad.size(), each.bad > 0 ? 1U : 0U) << each.broken;
    if (bad.empty()) continue;
    EXPECT_EQ(bad[0].bad_lines, each.bad) << each.broken;
    EXPECT_TRUE(contains_all(bad[0].reason, {"line 25002"})) << each.broken;
    EXPECT_FALSE(bad[0].is_abandoned);
  }
}

TEST_F(BadLines, AQuoteThatIsNeverClosedCostsItsLineAlone) {
  const auto all = stream("a.csv", "id,text\n1,a\n2,\"b\n3,c\n4,d\n5\n6,\"e,f\"\n");
  EXPECT_EQ(rows(all.open()), (Texts{"{\"id\": 1, \"text\": \"a\"}", "{\"id\": 3, \"text\": \"c\"}",
                                     "{\"id\": 4, \"text\": \"d\"}", "{\"id\": 6, \"text\": \"e,f\"}"}));
  // The incomplete row may be a part of the broken one.
  EXPECT_EQ(all.bad_files().at(0).bad_lines, 2);
}

TEST_F(BadLines, CellsThatDoNotFitTheGivenTypesCostTheirRow) {
  LoadOptions options;
  options.features =
      Features({{"a", Feature(DataType(TypeKind::int8))}, {"b", Feature::class_label({"no", "yes"})}});
  const auto all = stream("a.csv", "a,b\n1,yes\n2,maybe\n300,no\nx,no\n5,no\n", options);
  EXPECT_EQ(rows(all.open()), (Texts{"{\"a\": 1, \"b\": 1}", "{\"a\": 5, \"b\": 0}"}));
  EXPECT_EQ(all.bad_files().at(0).bad_lines, 3);
  EXPECT_TRUE(contains_all(all.bad_files()[0].reason, {"row 1 (line 3)", "'b'", "maybe"}));
}

TEST_F(BadLines, LinesOfTextThatAreNotUtf8) {
  std::string text;
  for (int line = 1; line <= 45'000; ++line) text += line == 41'001 ? "\xFF\n" : std::to_string(line) + "\n";
  const auto all = stream("a.txt", text);
  EXPECT_EQ(rows(all.open()).size(), 44'999U);
  EXPECT_EQ(all.bad_files().at(0).bad_lines, 1);
  EXPECT_TRUE(contains_all(all.bad_files()[0].reason, {"line 41001", "UTF-8"}));
  // Without skip_bad it is an error, behind the lines before it.
  auto pass = IterableDataset::load(folder_ / "a.txt").open();
  for (int line = 1; line <= 41'000; ++line) ASSERT_TRUE(pass.next());
  EXPECT_THROWS((pass.next()), DataError, "line 41001");
}

TEST_F(BadLines, ATruncatedPackedFileKeepsItsWholeLines) {
  std::string text = "id,text\n";
  for (int row = 0; row < 50'000; ++row)
    text += std::to_string(row) + ",text " + std::to_string(row * 7919) + "\n";
  const auto path = folder_ / "a.csv.gz";
  {
    const auto codec = *arrow::util::Codec::Create(arrow::Compression::GZIP);
    const auto file = *arrow::io::FileOutputStream::Open(path.string());
    const auto packed = *arrow::io::CompressedOutputStream::Make(codec.get(), file);
    ASSERT_TRUE(packed->Write(text).ok() && packed->Close().ok());
  }
  const auto bytes = testing::read_bytes(path);
  testing::write_bytes(path, bytes.substr(0, bytes.size() / 2));
  const auto all = IterableDataset::load(path, {.skip_bad = true});
  const auto found = rows(all.open());
  ASSERT_GT(found.size(), 10'000U);
  const auto last = std::to_string(found.size() - 1);
  EXPECT_EQ(found.back(),
            "{\"id\": " + last + ", \"text\": \"text " + std::to_string((found.size() - 1) * 7919) + "\"}");
  ASSERT_EQ(all.bad_files().size(), 1U);
  EXPECT_TRUE(all.bad_files()[0].is_abandoned);
  EXPECT_THROWS((rows(IterableDataset::load(path).open())), DataError, "a.csv.gz");
}

}  // namespace
}  // namespace lockstep
