// What makes the key of a result: the same is found, and nothing that is not the same.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <numeric>
#include <set>

#include "lockstep/core/error.hpp"
#include "numbers.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::numbers;
using testing::options_in;
using testing::squares;
using testing::TemporaryFolder;
using testing::values_from;

TEST(MapKey, ChangesWithEverythingThatDeterminesTheResult) {
  const TemporaryFolder cache, files;
  std::atomic<int> calls{0};
  const auto counted = [&](const MapBatch& batch) {
    ++calls;
    return squares(batch);
  };
  auto options = options_in(cache);
  const auto computed = [&](const ArrowDataset& dataset) {
    calls = 0;
    map(dataset, counted, options);
    return calls > 0;
  };
  EXPECT_TRUE(computed(numbers(20)));
  EXPECT_FALSE(computed(numbers(20)));
  options.num_proc = 2;
  options.devices = {"cuda:1"};
  options.desc = "another text";
  EXPECT_FALSE(computed(numbers(20))) << "these have no influence on the result";
  options.parameters = R"({"a": {"b": 1}})";
  EXPECT_TRUE(computed(numbers(20)));
  options.parameters = R"({ "a": {"b":1}})";
  EXPECT_FALSE(computed(numbers(20))) << "the same JSON";
  options.version = "2";
  EXPECT_TRUE(computed(numbers(20)));
  options.version = std::nullopt;
  EXPECT_TRUE(computed(numbers(20)));
  EXPECT_FALSE(computed(numbers(20))) << "the same build";
  testing::write_bytes(files / "vocab", "a b c");
  options.input_files = {files / "vocab"};
  EXPECT_TRUE(computed(numbers(20)));
  testing::write_bytes(files / "vocab", "a b d");
  EXPECT_TRUE(computed(numbers(20)));
  EXPECT_TRUE(computed(numbers(21)));
  options.load_from_cache = false;
  EXPECT_TRUE(computed(numbers(21)));
  options.parameters = "[1]";
  EXPECT_THROWS(computed(numbers(20)), UsageError, "not a JSON object");
}

/// Labels of a file far above what was once sampled, corrected in place: same size, same name.
TEST(MapKey, SeesSingleLabelsOfALargeFileCorrectedInPlace) {
  const TemporaryFolder cache, data;
  std::vector<std::int64_t> labels(10'000'000, 1);
  ArrowDataset::from_columns({{"label", make_column(labels)}})
      .save_to_disk(data / "train", {.num_shards = 1});
  auto options = options_in(cache);
  options.remove_columns = {"label"};
  options.batch_size = 1'000'000;
  const auto sum = [&] {
    const auto sums = map(
        ArrowDataset::load(data / "train"),
        [](const MapBatch& batch) -> Columns {
          const auto values = batch.column<std::int64_t>("label").to_vector();
          return {{"sum", make_column(std::vector<std::int64_t>{
                              std::accumulate(values.begin(), values.end(), std::int64_t{0})})}};
        },
        options);
    const auto all = sums.column<std::int64_t>("sum").to_vector();
    return std::accumulate(all.begin(), all.end(), std::int64_t{0});
  };
  EXPECT_EQ(sum(), 10'000'000);
  const fs::path file = ArrowDataset::load(data / "train").files().front();
  std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
  for (int label = 1; label <= 8; ++label) {
    // A place that holds a label: the bytes of the number 1.
    bytes.seekp(static_cast<std::streamoff>(fs::file_size(file) / 9 * static_cast<unsigned>(label) / 8 * 8));
    bytes.write("\x02\0\0\0\0\0\0\0", 8);
  }
  bytes.close();
  EXPECT_EQ(sum(), 10'000'008);
}

TEST(MapKey, ParametersWithDotsInTheirNamesAreOthers) {
  const TemporaryFolder cache;
  auto options = options_in(cache);
  std::set<fs::path> entries;
  for (const auto* parameters : {R"({"a": {"b": 1}})", R"({"a.b": 1})", R"({"a": {"\"b\"": 1}})",
                                 R"({"a.\"b\"": 1})", R"({"": {"": 1}})", R"({".": 1})", R"({"": 1})"}) {
    options.parameters = parameters;
    entries.insert(map_cache_entry(numbers(20), {}, options));
  }
  EXPECT_EQ(entries.size(), 7U);
}

TEST(MapKey, CapturedValuesNeedParametersOrAVersion) {
  const TemporaryFolder cache;
  auto options = options_in(cache);
  options.version = std::nullopt;
  const std::int64_t factor = 3;
  const auto times = [factor](const MapBatch& batch) { return values_from(batch, 0, factor); };
  EXPECT_THROWS(map(numbers(20), times, options), UsageError, "map 'squares'", "captures values",
                "`parameters`", "`version`");
  const auto setup = [factor](const Worker&) { return factor; };
  const auto with_state = [](const MapBatch& batch, const std::int64_t& state) {
    return values_from(batch, 0, state);
  };
  EXPECT_THROWS(map(numbers(20), setup, with_state, options), UsageError, "captures values");
  EXPECT_THROWS(filter(
                    numbers(20), [factor](const Row& row) { return row.index() == factor; }, options),
                UsageError, "captures values");
  const std::function<Columns(const MapBatch&)> any = squares;
  EXPECT_THROWS(map(numbers(20), any, options), UsageError, "captures values");
  EXPECT_EQ(cache.files(), std::vector<std::string>());
  options.parameters = R"({"factor": 3})";
  EXPECT_EQ(map(numbers(20), times, options).column<std::int64_t>("v")[0], 3);
  options.parameters = "{}";
  options.keep_in_memory = true;
  EXPECT_EQ(map(numbers(20), setup, with_state, options).num_rows(), 20) << "nothing is kept";
}

TEST(MapKey, WithoutOptionsAFunctionHasNoCaptures) {
  const TemporaryFolder cache;
  ::setenv("LOCKSTEP_CACHE", cache.path().c_str(), 1);
  EXPECT_EQ(map(numbers(20), squares).column<std::int64_t>("square")[3], 9);
  EXPECT_EQ(filter(numbers(20), [](const Row& row) { return row.index() > 15; }).num_rows(), 4);
  EXPECT_EQ(cache.files().size(), 2U);
  ::unsetenv("LOCKSTEP_CACHE");
}

Columns ones(const MapBatch& batch) { return values_from(batch, 0, 1); }
Columns twos(const MapBatch& batch) { return values_from(batch, 0, 2); }

/// Of one build, under one name.
TEST(MapKey, FunctionsWithoutVersionsAreToldApart) {
  const TemporaryFolder cache;
  auto options = options_in(cache);
  options.version = std::nullopt;
  const auto first = [&](const auto& function) {
    return map(numbers(20), function, options).template column<std::int64_t>("v")[0];
  };
  const auto three = [](const MapBatch& batch) { return values_from(batch, 0, 3); };
  const auto four = [](const MapBatch& batch) { return values_from(batch, 0, 4); };
  for (int call = 0; call < 2; ++call) {
    EXPECT_EQ(first(ones), 1);
    EXPECT_EQ(first(twos), 2);
    EXPECT_EQ(first(three), 3);
    EXPECT_EQ(first(four), 4);
  }
  const auto state = [](const MapBatch& batch, const int& value) { return values_from(batch, 0, value); };
  const auto five = [](const Worker&) { return 5; };
  const auto six = [](const Worker&) { return 6; };
  EXPECT_EQ(map(numbers(20), five, state, options).column<std::int64_t>("v")[0], 5);
  EXPECT_EQ(map(numbers(20), six, state, options).column<std::int64_t>("v")[0], 6);
  EXPECT_EQ(cache.files().size(), 6U);
}

}  // namespace
}  // namespace lockstep
