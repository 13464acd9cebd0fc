#include "lockstep/datasets/iterable_dataset.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>
#include <regex>

#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::contains_all;
using Rows = std::vector<std::int64_t>;

/// Shards of the numbers from 0 on, `rows` in each.
IterableDataset numbers(std::int64_t shards, std::int64_t rows) {
  return IterableDataset::from_generator(shards, [rows](std::int64_t shard) {
    return [rows, next = shard * rows, end = (shard + 1) * rows]() mutable -> std::optional<Value::Fields> {
      if (next == end) return std::nullopt;
      return Value::Fields{{"id", Value(next++)}};
    };
  });
}

Rows ids(RowStream rows, std::int64_t most = 1'000'000) {
  Rows found;
  while (std::ssize(found) < most) {
    const auto row = rows.next();
    if (!row) break;
    found.push_back(row->front().second.integer());
  }
  return found;
}

Rows counted(std::int64_t count) {
  Rows all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Rows sorted(Rows rows) {
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST(IterableDataset, AShuffleIsAPermutationWithinItsBuffer) {
  constexpr std::int64_t kBuffer = 16;
  const auto rows = ids(numbers(1, 500).shuffle(7, kBuffer).open());
  EXPECT_EQ(sorted(rows), counted(500));
  EXPECT_NE(rows, counted(500));
  std::int64_t furthest = 0;
  for (std::int64_t place = 0; place < std::ssize(rows); ++place)
    furthest = std::max(furthest, rows[static_cast<std::size_t>(place)] - place);
  EXPECT_EQ(furthest, kBuffer - 1);
  // Every row of the buffer is drawn as often as the others: the first draw of many seeds.
  std::vector<int> first(kBuffer);
  for (std::uint64_t seed = 0; seed < 1600; ++seed)
    ++first[static_cast<std::size_t>(ids(numbers(1, 500).shuffle(seed, kBuffer).open(), 1).front())];
  EXPECT_GT(*std::min_element(first.begin(), first.end()), 60);
  EXPECT_LT(*std::max_element(first.begin(), first.end()), 150);
}

TEST(IterableDataset, TheOrderDependsOnSeedAndEpochAlone) {
  auto stream = numbers(8, 20).shuffle(1, 10);
  const auto first = ids(stream.open());
  EXPECT_EQ(ids(stream.open()), first);
  EXPECT_NE(ids(numbers(8, 20).shuffle(2, 10).open()), first);
  stream.set_epoch(1);
  const auto second = ids(stream.open());
  EXPECT_NE(second, first);
  EXPECT_EQ(sorted(second), counted(160));
  // The shards too come in another order.
  EXPECT_NE(first.front() / 20, second.front() / 20);
  stream.set_epoch(0);
  EXPECT_EQ(ids(stream.open()), first);
}

TEST(IterableDataset, TakeAndSkipPartTheSameRowsInEveryEpoch) {
  const auto shuffled = numbers(8, 20).shuffle(1, 10);
  auto train = shuffled.skip(40).shuffle(3, 5);
  auto test = shuffled.take(40);
  const auto of_train = ids(train.open());
  const auto of_test = ids(test.open());
  auto both = of_train;
  both.insert(both.end(), of_test.begin(), of_test.end());
  EXPECT_EQ(sorted(both), counted(160));
  train.set_epoch(5);
  test.set_epoch(5);
  EXPECT_NE(ids(train.open()), of_train);
  EXPECT_EQ(sorted(ids(train.open())), sorted(of_train));
  EXPECT_EQ(ids(test.open()), of_test);
}

TEST(IterableDataset, RanksAndWorkersReadEachRowOnceAndOpenOnlyTheirShards) {
  std::vector<std::atomic<int>> opened(12);
  const auto stream = IterableDataset::from_generator(12, [&](std::int64_t shard) {
    ++opened[static_cast<std::size_t>(shard)];
    return [row = shard * 3, end = shard * 3 + 3]() mutable -> std::optional<Value::Fields> {
      if (row == end) return std::nullopt;
      return Value::Fields{{"id", Value(row++)}};
    };
  });
  for (const auto strategy : {SplitStrategy::automatic, SplitStrategy::examples}) {
    Rows all;
    for (auto& count : opened) count = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const auto mine = split_dataset_by_node(stream.shuffle(9, 4), rank, 4, strategy);
      for (int worker = 0; worker < 5; ++worker) {
        const auto rows = ids(mine.open(5, worker));
        all.insert(all.end(), rows.begin(), rows.end());
      }
    }
    EXPECT_EQ(sorted(all), counted(36));
    for (auto& count : opened) EXPECT_EQ(count, strategy == SplitStrategy::automatic ? 1 : 4);
  }
}

/// Goes on from every place of a pass, each time in a stream of its own, and compares all that follows.
void expect_exact_resume(const IterableDataset& stream, int workers = 1, int worker = 0) {
  const auto whole = ids(stream.open(workers, worker));
  auto pass = stream.open(workers, worker);
  for (std::size_t place = 0; place <= whole.size(); ++place) {
    const Rows rest(whole.begin() + static_cast<std::ptrdiff_t>(place), whole.end());
    ASSERT_EQ(ids(stream.open(workers, worker, pass.state_dict())), rest) << "behind " << place << " rows";
    pass.next();
  }
}

TEST(IterableDataset, APassContinuesAtAnyPlaceBitForBit) {
  const auto odd = [](const Value::Fields& row) { return row.front().second.integer() % 2 == 1; };
  expect_exact_resume(numbers(5, 7));
  expect_exact_resume(numbers(5, 7).filter(odd).skip(3).take(11));
  expect_exact_resume(numbers(5, 40).shuffle(3, 8));
  expect_exact_resume(numbers(5, 40).filter(odd).shuffle(3, 300));
  expect_exact_resume(numbers(4, 60).shuffle(3, 70).filter(odd).shuffle(4, 9).take(90));
  expect_exact_resume(split_dataset_by_node(numbers(6, 20).shuffle(5, 16), 1, 4), 2, 1);
  auto later = split_dataset_by_node(numbers(6, 20).shuffle(5, 16), 1, 3);
  later.set_epoch(3);
  expect_exact_resume(later);
}

TEST(IterableDataset, ResumeReadsNoMoreAgainThanTheBufferGoesBack) {
  std::int64_t read = 0;
  const auto stream = IterableDataset::from_generator(100, [&](std::int64_t) {
                        return [&, left = 100]() mutable -> std::optional<Value::Fields> {
                          if (left-- == 0) return std::nullopt;
                          return Value::Fields{{"id", Value(read++)}};
                        };
                      }).shuffle(1, 50);
  auto pass = stream.open();
  for (int row = 0; row < 9000; ++row) pass.next();
  const auto state = pass.state_dict();
  EXPECT_LT(state.size(), 500U);
  read = 0;
  auto resumed = stream.open(1, 0, state);
  EXPECT_LT(read, 1000);
}

TEST(IterableDataset, ALoopContinuesWhereTheStateWasTaken) {
  auto stream = numbers(3, 10).shuffle(2, 5);
  Rows first;
  std::string state;
  for (auto& row : stream) {
    first.push_back(row.front().second.integer());
    if (first.size() == 12) state = stream.state_dict();
  }
  auto other = numbers(3, 10).shuffle(2, 5);
  other.load_state_dict(state);
  EXPECT_EQ(other.state_dict(), state);
  Rows rest;
  for (auto& row : other) rest.push_back(row.front().second.integer());
  EXPECT_EQ(rest, Rows(first.begin() + 12, first.end()));
}

TEST(IterableDataset, AStateOfAnotherPassIsRefused) {
  auto stream = numbers(4, 10).shuffle(2, 5);
  const auto state = stream.open().state_dict();
  const auto refused = [&](IterableDataset other, const char* what) {
    EXPECT_TRUE(contains_all(testing::message_of<UsageError>([&] { other.load_state_dict(state); }), {what}));
  };
  refused(numbers(5, 10).shuffle(2, 5), "stream");
  refused(numbers(4, 10).shuffle(3, 5), "stream");
  refused(split_dataset_by_node(stream, 0, 2), "its ranks is 1, here it is 2");
  EXPECT_THROW(stream.open(2, 0, state), UsageError);
  for (const char* damaged : {"{}", "[]", "{\"epoch\": \"x\"}"})
    EXPECT_THROW(stream.load_state_dict(damaged), UsageError) << damaged;
  EXPECT_EQ(ids(stream.open()).size(), 40U);
}

TEST(IterableDataset, APositionThatCannotBeIsRefused) {
  const auto refused = [](const IterableDataset& stream, const char* of, const char* no) {
    auto state = stream.open().state_dict();
    const auto place = state.find(of);
    ASSERT_NE(place, std::string::npos) << state;
    state.replace(place, std::string(of).size(), no);
    EXPECT_TRUE(
        contains_all(testing::message_of<UsageError>([&] { stream.open(1, 0, state); }), {"damaged"}));
  };
  refused(numbers(4, 10), "\"row\":0", "\"row\":-1");
  refused(numbers(4, 10), "\"shard\":0", "\"shard\":-1");
  refused(numbers(4, 10), "\"shard\":0", "\"shard\":5");
  refused(numbers(4, 10).take(3), "\"count\":0", "\"count\":4");
  refused(numbers(4, 10).shuffle(1, 5), "\"drawn\":0", "\"drawn\":1");
  auto pass = numbers(4, 10).shuffle(1, 5).open();
  for (int row = 0; row < 7; ++row) ASSERT_TRUE(pass.next());
  const auto state = std::regex_replace(pass.state_dict(), std::regex("\"from\":[0-9]+"), "\"from\":11");
  EXPECT_TRUE(
      contains_all(testing::message_of<UsageError>([&] { numbers(4, 10).shuffle(1, 5).open(1, 0, state); }),
                   {"its from is 11"}));
}

TEST(IterableDataset, MoreBatchesThanCanBeCountedAreAll) {
  const auto huge = std::numeric_limits<std::int64_t>::max() / 2;
  EXPECT_TRUE(ids(numbers(2, 10).batch(4).skip(huge).open()).empty());
}

TEST(IterableDataset, WrongArgumentsAreRefused) {
  const auto stream = numbers(3, 10);
  EXPECT_THROW(stream.shuffle(0, 0), UsageError);
  EXPECT_THROW(stream.take(-1), UsageError);
  EXPECT_THROW(stream.skip(-1), UsageError);
  EXPECT_THROW(stream.batch(0), UsageError);
  EXPECT_THROW(stream.open(2, 2), UsageError);
  EXPECT_THROW(split_dataset_by_node(stream, 2, 2), UsageError);
  EXPECT_THROW(split_dataset_by_node(stream, 0, 4, SplitStrategy::shards), UsageError);
  EXPECT_THROW(IterableDataset::from_generator(0, nullptr), UsageError);
}

class StreamFiles : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    testing::write_bytes(folder_ / name, text);
    return folder_ / name;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(StreamFiles, BracesNameEveryFileAndStarsThoseThatThereAre) {
  for (const char* name : {"a-08.txt", "a-09.txt", "a-10.txt", "b-9.txt"})
    write(name, std::string(name) + "\n");
  const auto texts = [&](const std::string& pattern) {
    std::vector<std::string> found;
    auto stream = IterableDataset::load(folder_ / pattern);
    for (auto& row : stream) found.push_back(row.front().second.text());
    return found;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts("a-{08..10}.txt"), (Texts{"a-08.txt", "a-09.txt", "a-10.txt"}));
  EXPECT_EQ(texts("{b-9,a-10}.txt"), (Texts{"b-9.txt", "a-10.txt"}));
  EXPECT_EQ(texts("a-*.txt"), (Texts{"a-08.txt", "a-09.txt", "a-10.txt"}));
  EXPECT_EQ(texts("{a,b}-*.txt"), (Texts{"a-08.txt", "a-09.txt", "a-10.txt", "b-9.txt"}));
  EXPECT_EQ(ArrowDataset::load(folder_ / "a-{08..09}.txt").num_rows(), 2);
  EXPECT_THROW(IterableDataset::load(folder_ / "{a,c}-*.txt"), DataError);
  EXPECT_THROW(IterableDataset::load(folder_ / "{0..1000000}"), UsageError);
  EXPECT_THROW(IterableDataset::load(folder_ / "{0..1000}{0..1000}"), UsageError);
  // Braces that are none of ours are letters.
  write("{x}.txt", "braces\n");
  EXPECT_EQ(texts("{x}.txt"), Texts{"braces"});
}

TEST_F(StreamFiles, ABadFileIsAnErrorOrPassedOverAndNamed) {
  write("a-0.jsonl", "{\"id\": 0}\n{\"id\": 1}\n");
  write("a-1.jsonl", "{\"id\": 2}\n{\"id\": \n");
  write("a-2.jsonl", "{\"id\": 4}\n");
  const auto error =
      testing::message_of<DataError>([&] { ids(IterableDataset::load(folder_ / "a-{0..3}.jsonl").open()); });
  EXPECT_TRUE(contains_all(error, {"a-1.jsonl", "line 2"}));
  const auto stream = IterableDataset::load(folder_ / "a-{0..3}.jsonl", {.skip_bad = true});
  EXPECT_EQ(ids(stream.take(10).open()), (Rows{0, 1, 2, 4}));
  const auto bad = stream.bad_files();
  ASSERT_EQ(bad.size(), 2U);
  EXPECT_EQ(bad[0].path, folder_ / "a-1.jsonl");
  EXPECT_TRUE(contains_all(bad[0].reason, {"line 2"}));
  EXPECT_EQ(bad[1].path, folder_ / "a-3.jsonl");
  EXPECT_EQ(ids(stream.open()), (Rows{0, 1, 2, 4}));
  EXPECT_EQ(stream.bad_files().size(), 2U) << "a file met in every epoch is one file";
}

TEST_F(StreamFiles, AFileThatHasBecomeShorterThanThePositionIsAnError) {
  write("a.jsonl", "{\"id\": 0}\n{\"id\": 1}\n{\"id\": 2}\n");
  const auto stream = IterableDataset::load(folder_ / "a.jsonl");
  auto pass = stream.open();
  for (int row = 0; row < 2; ++row) pass.next();
  const auto state = pass.state_dict();
  write("a.jsonl", "{\"id\": 0}\n");
  const auto error = testing::message_of<DataError>([&] { ids(stream.open(1, 0, state)); });
  EXPECT_TRUE(contains_all(error, {"a.jsonl", "1 rows", "2 of it were read", "shorter"})) << error;
}

TEST_F(StreamFiles, ALaterRowMayHaveAWiderType) {
  std::string text;
  for (int row = 0; row < 200'000; ++row)
    text += "{\"id\": " + std::to_string(row) + (row < 199'990 ? "" : ".5") + "}\n";
  write("a.jsonl", text);
  const auto stream = IterableDataset::load(folder_ / "a.jsonl");
  auto rows = stream.open();
  std::int64_t count = 0;
  for (; const auto row = rows.next(); ++count) {
    ASSERT_EQ(static_cast<std::int64_t>(row->front().second.number()), count);
    if (count == 199'995) {
      EXPECT_EQ(row->front().second.number(), 199'995.5);
    }
  }
  EXPECT_EQ(count, 200'000);
}

}  // namespace
}  // namespace lockstep
