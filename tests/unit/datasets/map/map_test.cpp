#include "lockstep/datasets/map.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/stage.hpp"
#include "numbers.hpp"
#include "support/throws.hpp"
#include "unit/datasets/distributed/doubling.hpp"
#include "unit/datasets/distributed/threads_as_ranks.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::numbers;
using testing::only_entry;
using testing::options_in;
using testing::run_job;
using testing::shards_of;
using testing::squares;
using testing::TemporaryFolder;
using testing::values_from;

/// Tokens of different lengths, and one more row for each tenth: what grouping texts does.
Columns pieces(const MapBatch& batch) {
  std::vector<std::vector<std::int64_t>> ids;
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    const std::int64_t row = batch.first_row + i;
    ids.emplace_back(static_cast<std::size_t>(row % 5), row);
    if (row % 10 == 0) ids.push_back({row});
  }
  return {{"ids", make_column(ids)}};
}

TEST(Map, AddsTheFunctionsColumnsToTheSources) {
  const TemporaryFolder cache;
  const auto mapped = map(numbers(50), squares, options_in(cache));
  EXPECT_EQ(mapped.column_names(), (std::vector<std::string>{"n", "text", "square"}));
  ASSERT_EQ(mapped.num_rows(), 50);
  for (std::int64_t row = 0; row < 50; ++row) {
    EXPECT_EQ(mapped.column<std::int64_t>("square")[row], row * row + row / 7 * 7 % 7);
    EXPECT_EQ(mapped.column<std::string>("text")[row], "row " + std::to_string(row));
  }
}

TEST(Map, ReplacesAndRemovesColumns) {
  const TemporaryFolder cache;
  auto options = options_in(cache);
  options.remove_columns = {"text"};
  const auto upper = [](const MapBatch& batch) -> Columns {
    std::vector<double> halves;
    for (std::int64_t i = 0; i < batch.size(); ++i)
      halves.push_back(static_cast<double>(batch.column<std::int64_t>("n")[i]) / 2);
    return {{"n", make_column(halves)}, {"text", make_column(std::vector<bool>(halves.size(), true))}};
  };
  const auto mapped = map(numbers(30), upper, options);
  EXPECT_EQ(mapped.column_names(), (std::vector<std::string>{"n", "text"}));
  EXPECT_EQ(mapped.column<double>("n")[29], 14.5);
  EXPECT_EQ(mapped.column<bool>("text")[0], true);
}

TEST(Map, IsTheSameForAnyNumberOfWorkersAndRanks) {
  const TemporaryFolder one, four, job;
  auto options = options_in(one);
  options.remove_columns = {"n", "text"};
  options.num_proc = 1;
  const auto alone = map(numbers(333), pieces, options);
  options.cache_folder = four.path();
  options.num_proc = 4;
  map(numbers(333), pieces, options);
  options.cache_folder = job.path();
  options.num_proc = 0;
  std::atomic<int> calls{0};
  const auto counted = [&](const MapBatch& batch) {
    ++calls;
    return pieces(batch);
  };
  EXPECT_EQ(run_job(4,
                    [&](const DistributedContext& ranks) {
                      auto own = options;
                      own.ranks = ranks;
                      const auto mapped = map(numbers(333), counted, own);
                      EXPECT_EQ(mapped.fingerprint(), alone.fingerprint());
                    }),
            std::vector<std::string>(4));
  EXPECT_EQ(calls, 16 * 3) << "16 parts of 3 batches, each once";
  EXPECT_EQ(alone.num_rows(), 333 + 34);
  EXPECT_EQ(shards_of(only_entry(one)), shards_of(only_entry(four)));
  EXPECT_EQ(shards_of(only_entry(one)), shards_of(only_entry(job)));
}

TEST(Map, InMemoryIsTheSame) {
  const TemporaryFolder cache;
  auto options = options_in(cache);
  const auto kept = map(numbers(100), squares, options);
  options.keep_in_memory = true;
  options.num_proc = 3;
  options.cache_folder = cache / "unused";
  const auto in_memory = map(numbers(100), squares, options);
  EXPECT_EQ(in_memory.column<std::int64_t>("square").to_vector(),
            kept.column<std::int64_t>("square").to_vector());
  EXPECT_EQ(in_memory.column_names(), kept.column_names());
  EXPECT_FALSE(fs::exists(cache / "unused"));
}

TEST(Map, TakesFunctionsOfSingleRows) {
  const TemporaryFolder cache;
  const auto mapped = map(
      numbers(25),
      [](const Row& row) -> Value::Fields {
        return {{"length", Value(static_cast<std::int64_t>(row.get<std::string>("text").size()))}};
      },
      options_in(cache));
  EXPECT_EQ(mapped.column<std::int64_t>("length")[9], 5);
  EXPECT_EQ(mapped.column<std::int64_t>("length")[10], 6);
  EXPECT_THROWS(map(
                    numbers(25),
                    [](const Row& row) -> Value::Fields {
                      if (row.get<std::int64_t>("n") == 17) throw DataError("seventeen");
                      return {};
                    },
                    [&] {
                      auto options = options_in(cache);
                      options.name = "other";
                      return options;
                    }()),
                DataError, "map 'other', rows 14 to 20 (worker ", "row 17: seventeen");
}

TEST(Map, EachWorkerHasItsOwnState) {
  const TemporaryFolder cache;
  auto options = options_in(cache);
  options.num_proc = 3;
  options.devices = {"cuda:0", "cuda:1", "cuda:2"};
  std::mutex mutex;
  std::multiset<std::string> devices;
  const auto setup = [&](const Worker& worker) {
    const std::lock_guard lock(mutex);
    devices.insert(worker.device);
    return std::make_unique<int>(worker.rank);
  };
  std::atomic<int> wrong{0};
  map(
      numbers(200), setup,
      [&](const MapBatch& batch, std::unique_ptr<int>& state, const Worker& worker) {
        if (*state != worker.rank || worker.rank < 0 || worker.rank >= worker.count || worker.count != 3)
          ++wrong;
        return squares(batch);
      },
      options);
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(devices.size(), 1U);
  EXPECT_EQ(devices.size(), std::set<std::string>(devices.begin(), devices.end()).size()) << "once a worker";
}

TEST(Map, RefusesColumnsThatDoNotFit) {
  const TemporaryFolder cache;
  auto options = options_in(cache);
  const auto with = [&](auto function) { return [&, function] { map(numbers(20), function, options); }; };
  EXPECT_THROWS(with(pieces)(), UsageError, "map 'squares', rows 0 to 6",
                "the source's columns 'n', 'text' stay");
  EXPECT_THROWS(
      with([](const MapBatch&) -> Columns {
        return {{"a", make_column(std::vector<double>{1})}, {"b", make_column(std::vector<double>{})}};
      })(),
      UsageError, "'a' has 1 rows, 'b' has 0");
  EXPECT_THROWS(with([](const MapBatch& batch) -> Columns {
                  const auto rows = static_cast<std::size_t>(batch.size());
                  if (batch.first_row < 7) return {{"a", make_column(std::vector<double>(rows))}};
                  return {{"a", make_column(std::vector<std::string>(rows))}};
                })(),
                UsageError, "rows 7 to 13", "'a' is of type string, but of type float64 before");
  options.remove_columns = {"nothing"};
  EXPECT_THROWS(with(squares)(), UsageError, "remove_columns: the data set has no column 'nothing'");
  options.remove_columns.clear();
  options.batch_size = 0;
  EXPECT_THROWS(with(squares)(), UsageError, "batch_size 0");
}

/// Parts of nothing but nulls, of both, and of values: in one shard and in several, kept and in memory.
TEST(Map, NullsTakeTheTypeOfTheOtherParts) {
  for (const std::int64_t shard_rows : {7, 21, 1000}) {
    for (const bool in_memory : {false, true}) {
      const TemporaryFolder cache;
      auto options = options_in(cache);
      options.shard_rows = shard_rows;
      options.keep_in_memory = in_memory;
      options.num_proc = 1;
      const auto function = [](const MapBatch& batch) { return values_from(batch, 30, 0.5); };
      for (int call = 0; call < 2; ++call) {
        const auto mapped = map(numbers(50), function, options);
        EXPECT_EQ(mapped.features()["v"].type().text(), "float64");
        EXPECT_EQ(mapped.features()["list"].type().text(), "list<float64>");
        EXPECT_EQ(mapped.column("v").null_count(), 30);
        EXPECT_EQ(mapped.column<double>("v")[30], 0.5);
        EXPECT_EQ(mapped.column<std::vector<double>>("list")[29], std::vector<double>{});
        EXPECT_EQ(mapped.column<std::vector<double>>("list")[49], std::vector<double>{0.5});
        EXPECT_EQ(mapped.column<std::string>("text")[49], "row 49");
      }
      if (in_memory) continue;
      const auto manifest = read_manifest(only_entry(cache));
      EXPECT_EQ(finished_shards(only_entry(cache)).size(), manifest->shards.size())
          << "nothing of before stays";
    }
  }
}

/// As in lines of JSON.
TEST(Map, StructuresTakeTheFieldsOfTheOtherParts) {
  const TemporaryFolder cache;
  auto options = options_in(cache);
  options.shard_rows = 7;
  const auto fields = [](const MapBatch& batch) -> Columns {
    const std::string name = batch.first_row < 7 ? "a" : "b";
    ColumnBuilder builder(DataType::struct_({{name, DataType(TypeKind::int64)}}));
    for (std::int64_t row = 0; row < batch.size(); ++row)
      builder.append(Value(Value::Fields{{name, batch.first_row + row}}));
    return {{"v", builder.finish()}};
  };
  const auto mapped = map(numbers(20), fields, options);
  EXPECT_EQ(mapped.row(0)["v"].to_json(), R"({"a": 0, "b": null})");
  EXPECT_EQ(mapped.row(19)["v"].to_json(), R"({"a": null, "b": 19})");
}

TEST(Map, NullsTakeTheTypeThatTheProgramSays) {
  const TemporaryFolder cache;
  auto options = options_in(cache);
  options.features = Features({{"v", Feature(DataType(TypeKind::float32))}});
  const auto mapped = map(
      numbers(50), [](const MapBatch& batch) { return values_from(batch, 50, 0.5); }, options);
  EXPECT_EQ(mapped.features()["v"].type().text(), "float32");
  EXPECT_EQ(mapped.column("v").null_count(), 50);
}

/// As in `datasets`, whose writer tries the source's types first.
TEST(Map, ColumnsOfOnlyNullsKeepTheTypeOfTheSource) {
  const auto nulls = [](const Row&) { return Value::Fields{{"text", Value()}, {"none", Value()}}; };
  for (const bool in_memory : {false, true}) {
    const TemporaryFolder cache;
    auto options = options_in(cache);
    options.keep_in_memory = in_memory;
    const auto mapped = map(numbers(50), nulls, options);
    EXPECT_EQ(mapped.features()["text"].type().text(), "string");
    EXPECT_EQ(mapped.column("text").null_count(), 50);
    EXPECT_EQ(mapped.features()["none"].type().text(), "null");
  }
}

/// What nobody can read must not become an entry, and must not be in the way of a corrected function.
TEST(Map, ShardsOfDifferentTypesAreNoResult) {
  const TemporaryFolder cache;
  auto options = options_in(cache);
  options.shard_rows = 7;
  const auto mixed = [](const MapBatch& batch) {
    return batch.first_row < 14 ? values_from(batch, 0, 1) : values_from(batch, 0, 0.5);
  };
  EXPECT_THROWS(map(numbers(50), mixed, options), UsageError, "map 'squares', the results of rows 14 to 20",
                "'v' is of type float64, but of type int64 before");
  EXPECT_TRUE(cache.files().empty());
  options.keep_in_memory = true;
  EXPECT_THROWS(map(numbers(50), mixed, options), UsageError, "rows 14 to 20", "'v'");
  options.keep_in_memory = false;
  const auto corrected = [](const MapBatch& batch) { return values_from(batch, 0, 0.5); };
  EXPECT_EQ(map(numbers(50), corrected, options).column<double>("v")[0], 0.5);
}

TEST(Map, AFailureNamesRowsWorkerAndRank) {
  const TemporaryFolder cache;
  const auto outcomes = run_job(4, [&](const DistributedContext& ranks) {
    auto options = options_in(cache);
    options.ranks = ranks;
    map(
        numbers(400),
        [](const MapBatch& batch) -> Columns {
          if (batch.first_row == 147) throw std::runtime_error("no such word");
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          return {};
        },
        options);
  });
  for (const auto& outcome : outcomes)
    EXPECT_TRUE(testing::contains_all(outcome, {"map 'squares', rows 147 to 153 (worker ", "no such word"}));
}

TEST(Map, FiltersByTheSameMachinery) {
  const TemporaryFolder cache;
  std::atomic<int> calls{0};
  const auto odd = [&](const MapBatch& batch) {
    ++calls;
    std::vector<bool> keep;
    for (std::int64_t i = 0; i < batch.size(); ++i)
      keep.push_back(batch.column<std::int64_t>("n")[i] % 2 == 1);
    return keep;
  };
  const auto shuffled = numbers(101).shuffle(3);
  const auto filtered = filter(shuffled, odd, options_in(cache));
  EXPECT_EQ(filtered.num_rows(), 50);
  std::vector<std::int64_t> expected;
  for (const auto value : shuffled.column<std::int64_t>("n").to_vector()) {
    if (value % 2 == 1) expected.push_back(value);
  }
  EXPECT_EQ(filtered.column<std::int64_t>("n").to_vector(), expected);
  calls = 0;
  EXPECT_EQ(filter(shuffled, odd, options_in(cache)).num_rows(), 50);
  EXPECT_EQ(calls, 0);
  auto options = options_in(cache);
  options.name = "none";
  EXPECT_EQ(filter(
                shuffled, [](const Row&) { return false; }, options)
                .num_rows(),
            0);
}

TEST(Map, OfNoRowsIsEmpty) {
  const TemporaryFolder cache;
  auto options = options_in(cache);
  options.remove_columns = {"text"};
  const auto mapped = map(numbers(0), squares, options);
  EXPECT_EQ(mapped.num_rows(), 0);
  EXPECT_EQ(mapped.column_names(), std::vector<std::string>{"n"});
}

TEST(Map, KeepsWhatColumnsMean) {
  const TemporaryFolder cache;
  const auto labels = make_column(std::vector<std::int64_t>{0, 1, 1});
  const Features features({{"label", Feature::class_label({"no", "yes"})}});
  const auto source = ArrowDataset::from_columns({{"label", labels}}, features).with_split("train");
  auto options = options_in(cache);
  options.features = Features({{"guess", Feature::class_label({"a", "b"})}});
  const auto mapped = map(
      source,
      [&](const MapBatch& batch) -> Columns {
        return {{"guess", batch.rows.column("label")}};
      },
      options);
  EXPECT_EQ(mapped.features()["label"].names(), (std::vector<std::string>{"no", "yes"}));
  EXPECT_EQ(mapped.features()["guess"].names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(mapped.split(), "train");
  options.features.reset();
  const auto swapped = [](const Row& row) { return Value::Fields{{"label", 1 - row["label"].integer()}}; };
  EXPECT_EQ(map(source, swapped, options).features(), features);
  options.version = "2";
  const auto next = [](const Row& row) { return Value::Fields{{"label", row["label"].integer() + 1}}; };
  EXPECT_THROWS((map(source, next, options)), UsageError, "the column 'label'", "value 2", "2 classes");
}

TEST(Map, FeaturesConvertTheResultAndCheckItsClasses) {
  const TemporaryFolder cache;
  auto options = options_in(cache);
  const auto half = [](const Row& row) {
    const auto n = row.get<std::int64_t>("n");
    // Integers in the first batch alone.
    return Value::Fields{{"half", n < 10 ? Value(n) : Value(static_cast<double>(n) / 2)}};
  };
  options.features = Features({{"half", Feature(DataType(TypeKind::float64))}});
  EXPECT_EQ(map(numbers(50), half, options).column<double>("half")[49], 24.5);
  const auto label = [](const Row& row) {
    return Value::Fields{{"label", row.get<std::int64_t>("n") / 10},
                         {"labels", Value::List{row.get<std::int64_t>("n") / 20}}};
  };
  const auto classes = Feature::class_label({"a", "b", "c"});
  options.num_proc = 1;
  options.features =
      Features({{"label", Feature(DataType(TypeKind::int32))}, {"labels", Feature::list(classes)}});
  const auto mapped = map(numbers(50), label, options);
  EXPECT_EQ(mapped.column<std::int32_t>("label")[49], 4);
  EXPECT_EQ(mapped.features()["labels"], Feature::list(classes));
  options.features = Features({{"label", classes}});
  EXPECT_THROWS((map(numbers(50), label, options)), UsageError, "rows 28 to 34",
                "row 2 of the column 'label'", "3 classes");
  options.features = Features({{"labels", Feature::list(Feature::class_label({"a", "b"}))}});
  EXPECT_THROWS((map(numbers(50), label, options)), UsageError, "rows 35 to 41", "'labels'", "2 classes");
}

TEST(Map, StagedResultsAreTheSameData) {
  const TemporaryFolder cache, disk;
  const auto mapped = map(numbers(100), squares, options_in(cache));
  StageOptions options;
  options.report = false;
  const auto staged = stage(mapped, disk.path(), options);
  EXPECT_EQ(staged.fingerprint(), mapped.fingerprint());
  for (const auto& file : staged.files())
    EXPECT_TRUE(file.string().starts_with(disk.path().string())) << file;
  EXPECT_EQ(staged.column<std::int64_t>("square").to_vector(),
            mapped.column<std::int64_t>("square").to_vector());
  const auto shuffled = stage(mapped.shuffle(1), disk.path(), options);
  EXPECT_EQ(shuffled.column<std::int64_t>("n").to_vector(),
            mapped.shuffle(1).column<std::int64_t>("n").to_vector());
  EXPECT_FALSE(shuffled.has_indices());
  EXPECT_EQ(disk.files().size(), 2U);
  EXPECT_EQ(stage(mapped.shuffle(1), disk.path(), options).fingerprint(), shuffled.fingerprint());
}

}  // namespace
}  // namespace lockstep
