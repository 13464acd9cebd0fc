#include <arrow/buffer.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <random>

#include "datasets/arrow/stream_reader.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

/// A stream with text, lists, structures and nulls in several batches.
std::string stream() {
  std::vector<Value> rows;
  for (int row = 0; row < 20; ++row) {
    const Value::Fields inner{{"x", row % 3 == 0 ? Value() : Value(row)},
                              {"y", Value::List{"p", std::string(row, 'q')}}};
    rows.emplace_back(Value::Fields{{"text", row % 5 == 2 ? Value() : Value(std::to_string(row * row))},
                                    {"flag", row % 2 == 0},
                                    {"real", row * 0.5},
                                    {"list", Value::List{inner, inner}}});
  }
  const testing::TemporaryFolder folder;
  ArrowDataset::from_rows(rows).to_arrow(folder / "a.arrow", 8);
  return testing::read_bytes(folder / "a.arrow");
}

/// Reads every value of what a reader accepted.
void read_all(const arrow_file::FileTable& table) {
  for (std::size_t place = 0; place < table.columns.size(); ++place) {
    const auto data =
        std::make_shared<const ColumnData>(table.schema.fields[place].type, table.columns[place]);
    const Column column(data, RowMap(0, std::min<std::int64_t>(data->size(), 100)));
    for (std::int64_t row = 0; row < column.size(); ++row) static_cast<void>(column.value(row).to_json());
  }
}

/// Whether the reader took the bytes; it must give a DataError otherwise, and nothing else. The bytes lie in
/// a block of their own, so that the address sanitizer sees a read behind them.
bool accepted(const std::string& bytes) {
  const auto block = arrow::Buffer::FromVector(std::vector<char>(bytes.begin(), bytes.end()));
  try {
    read_all(arrow_file::read_arrow(block, "hostile", false));
    return true;
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("'hostile'"), std::string::npos) << error.what();
    return false;
  }
}

TEST(HostileArrow, EveryTruncationIsAnErrorOrEndsBetweenBatches) {
  const auto whole = stream();
  ASSERT_TRUE(accepted(whole));
  int taken = 0;
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    taken += accepted(whole.substr(0, bytes)) ? 1 : 0;
  // A stream may end behind any message: behind the schema, three batches, and half of the end's mark.
  EXPECT_EQ(taken, 4);
}

/// A file of 16 texts of one letter in two record batches, with an offset in the second that leads nowhere.
void write_damaged(const std::filesystem::path& path) {
  ArrowDataset::from_columns({{"id", make_column(std::vector<std::int64_t>(16, 7))},
                              {"text", make_column(std::vector<std::string>(16, "x"))}})
      .to_arrow(path, 8);
  auto bytes = testing::read_bytes(path);
  const std::array<std::int32_t, 9> offsets = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const std::string_view pattern(reinterpret_cast<const char*>(offsets.data()), sizeof offsets);
  const auto first = bytes.find(pattern);
  const auto second = bytes.find(pattern, first + 1);
  ASSERT_NE(second, std::string::npos);
  bytes[second + 5 * 4] = 100;
  testing::write_bytes(path, bytes);
}

TEST(HostileArrow, ADamagedRecordBatchIsNamedWhenItsRowsAreRead) {
  const testing::TemporaryFolder folder;
  write_damaged(folder / "a.arrow");
  const auto data = ArrowDataset::load(folder / "a.arrow");
  EXPECT_EQ(data.column<std::int64_t>("id")[15], 7);
  const auto texts = data.column<std::string_view>("text");
  EXPECT_EQ(texts[7], "x");
  for (int again = 0; again < 2; ++again)
    EXPECT_THROWS((texts[8]), DataError, "a.arrow", "record batch 1", "column 'text'", "row 5", "100");
  EXPECT_THROWS((data.to_json(folder / "b.jsonl")), DataError, "record batch 1");
  EXPECT_THROWS((data.shuffle(1).flatten_indices()), DataError, "record batch 1");
  EXPECT_THROWS((ArrowDataset::concatenate({data, data}).row(24).value()), DataError, "record batch 1");
}

TEST(HostileArrow, FlippedBitsAreErrorsOrOtherValues) {
  const auto whole = stream();
  std::mt19937_64 random(1);
  const char* const rounds = std::getenv("LOCKSTEP_FLIPS");
  int refused = 0;
  for (int round = 0; round < (rounds != nullptr ? std::atoi(rounds) : 3000); ++round) {
    auto bytes = whole;
    for (int flips = 0; flips < 1 + round % 3; ++flips) {
      const auto bit = random() % (8 * bytes.size());
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    }
    refused += accepted(bytes) ? 0 : 1;
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace lockstep
