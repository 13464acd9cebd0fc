#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <sstream>

#include "lockstep/core/error.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/datasets/iterable_tensors.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::contains_all;
using testing::message_of;
using Rows = std::vector<std::int64_t>;
using Batches = std::vector<Rows>;

/// The numbers from 0 on in shards of these lengths. Reading the number `failing` throws.
IterableDataset numbers(const Rows& lengths, std::int64_t failing = -1) {
  return IterableDataset::from_generator(std::ssize(lengths), [lengths, failing](std::int64_t shard) {
    const auto begin = std::accumulate(lengths.begin(), lengths.begin() + shard, std::int64_t{0});
    return
        [failing, next = begin,
         end = begin + lengths[static_cast<std::size_t>(shard)]]() mutable -> std::optional<Value::Fields> {
          if (next == end) return std::nullopt;
          if (next == failing) throw DataError("broken row");
          const auto id = next++;
          // A byte that no UTF-8 has.
          return Value::Fields{{"id", Value(id)}, {"name", Value("\xff" + std::to_string(id))}};
        };
  });
}

std::shared_ptr<const StreamDataset> tensors(const IterableDataset& data) {
  return std::make_shared<IterableTensorDataset>(data, IterableTensorOptions{.columns = {"id", "name"}});
}

/// Rows that are only repeated have a minus and one less: -1 is the row 0.
Rows rows_of(const Batch& batch) {
  const auto ids = batch["id"].cpu();
  EXPECT_EQ(std::ssize(batch.valid), ids.size(0));
  Rows rows;
  for (std::int64_t row = 0; row < ids.size(0); ++row) {
    const auto id = ids[row].item<std::int64_t>();
    EXPECT_EQ(batch.texts("name").at(static_cast<std::size_t>(row)), "\xff" + std::to_string(id));
    rows.push_back(batch.valid[static_cast<std::size_t>(row)] ? id : -1 - id);
  }
  return rows;
}

Batches read(DataLoader& loader, std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  Batches batches;
  if (most == 0) return batches;
  for (auto& batch : loader) {
    batches.push_back(rows_of(batch));
    if (std::ssize(batches) == most) break;
  }
  return batches;
}

std::string text_of(const Batches& batches) {
  std::string text;
  for (const auto& batch : batches) {
    for (const auto row : batch) text += std::to_string(row) + " ";
    text += "/ ";
  }
  return text;
}

/// The numbers from 0 to `count` - 1 that are valid rows, each how often.
std::map<std::int64_t, int> counted(const std::vector<Batches>& ranks) {
  std::map<std::int64_t, int> counts;
  for (const auto& batches : ranks)
    for (const auto& batch : batches)
      for (const auto row : batch)
        if (row >= 0) ++counts[row];
  return counts;
}

void expect_each_once(const std::vector<Batches>& ranks, std::int64_t count) {
  const auto counts = counted(ranks);
  EXPECT_EQ(std::ssize(counts), count);
  for (const auto& [row, times] : counts) EXPECT_EQ(times, 1) << row;
}

/// One loader a rank, read by threads.
std::vector<Batches> read_on_ranks(int ranks, const std::function<Batches(const ProcessGroup&)>& body) {
  std::vector<Batches> all(static_cast<std::size_t>(ranks));
  testing::run_group(
      ranks, [&](const ProcessGroup& group) { all[static_cast<std::size_t>(group.rank())] = body(group); });
  return all;
}

/// A line of stream_loader_golden.py: "kind RANKS WORKERS BATCH SPLIT DROP_LAST LENGTHS... : RANK0 ; RANK1".
struct Golden {
  std::string kind;
  int ranks = 0;
  int workers = 0;
  std::int64_t batch_size = 0;
  bool split = false;
  bool drop_last = false;
  Rows lengths = {};
  std::vector<std::string> expected = {};
};

std::vector<Golden> golden(const std::string& kind) {
  std::ifstream file(LOCKSTEP_STREAM_LOADER_GOLDEN);
  std::vector<Golden> lines;
  for (std::string text; std::getline(file, text);) {
    std::istringstream words(text.substr(0, text.find(':')));
    Golden line;
    words >> line.kind >> line.ranks >> line.workers >> line.batch_size >> line.split >> line.drop_last;
    for (std::int64_t length = 0; words >> length;) line.lengths.push_back(length);
    std::istringstream ranks(text.substr(text.find(':') + 1));
    for (std::string rank; std::getline(ranks, rank, ';');) line.expected.push_back(rank.substr(1));
    if (line.kind == kind) lines.push_back(line);
  }
  EXPECT_GT(lines.size(), 20U);
  return lines;
}

TEST(StreamLoader, PartsAndOrderArePyTorchsOverDatasetsStreams) {
  for (const auto& line : golden("torch")) {
    const DataLoader whole(
        tensors(numbers(line.lengths)),
        {.batch_size = line.batch_size, .drop_last = line.drop_last, .num_workers = line.workers});
    for (int rank = 0; rank < line.ranks; ++rank) {
      DataLoader part = whole.shard(line.ranks, rank, at::kCPU, {.even_batches = false});
      EXPECT_EQ(text_of(read(part)), line.expected[static_cast<std::size_t>(rank)])
          << line.ranks << " ranks, " << line.workers << " workers, " << line.lengths.size() << " shards";
    }
  }
}

TEST(StreamLoader, DispatchedBatchesAreAcceleratesWithRepeatedRowsMarked) {
  for (const auto& line : golden("dispatch")) {
    const auto ranks = read_on_ranks(line.ranks, [&](const ProcessGroup& group) {
      const DataLoader whole(tensors(numbers(line.lengths)),
                             {.batch_size = line.batch_size, .drop_last = line.drop_last});
      DataLoader part = whole.shard(group, at::kCPU, {.split_batches = line.split, .dispatch_batches = true});
      auto batches = read(part);
      EXPECT_EQ(part.position(), 0);
      EXPECT_EQ(part.epoch(), 1);
      return batches;
    });
    if (!line.drop_last) expect_each_once(ranks, std::reduce(line.lengths.begin(), line.lengths.end()));
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      auto all = ranks[rank];
      for (auto& batch : all)
        for (auto& row : batch) row = row < 0 ? -1 - row : row;
      EXPECT_EQ(text_of(all), line.expected[rank]) << "rank " << rank << " of " << line.ranks;
    }
  }
}

TEST(StreamLoader, APassContinuesAtAnyBatchWithWorkersPrefetchAndShuffle) {
  for (const int workers : {0, 1, 2}) {
    const DataLoaderOptions options{.batch_size = 3, .num_workers = workers, .prefetch_factor = 3};
    const auto stream = tensors(numbers({9, 4, 11, 7, 2}).shuffle(5, 4));
    DataLoader whole(stream, options);
    whole.set_epoch(2);
    const auto all = read(whole);
    expect_each_once({all}, 33);
    EXPECT_EQ(whole.epoch(), 3);
    for (std::int64_t place = 0; place <= std::ssize(all); ++place) {
      DataLoader before(stream, options);
      before.set_epoch(2);
      auto batches = read(before, place);
      DataLoader after(stream, options);
      after.load_state(before.state());
      EXPECT_EQ(after.position(), place);
      const auto rest = read(after);
      batches.insert(batches.end(), rest.begin(), rest.end());
      EXPECT_EQ(batches, all) << "after " << place << " batches of " << workers << " workers";
      EXPECT_EQ(after.epoch(), 3);
    }
  }
}

TEST(StreamLoader, EveryEpochHasAnotherOrderTheSameForEveryLoader) {
  const auto stream = tensors(numbers({20, 20}).shuffle(1, 10));
  DataLoader loader(stream, {.batch_size = 8, .num_workers = 2});
  const auto first = read(loader);
  const auto second = read(loader);
  EXPECT_NE(first, second);
  DataLoader other(stream, {.batch_size = 8, .num_workers = 2});
  other.set_epoch(1);
  EXPECT_EQ(read(other), second);
  other.set_epoch(0);
  EXPECT_EQ(read(other), first);
}

TEST(StreamLoader, RanksEndTogetherWithEveryRowOnce) {
  // By files, by rows, and with a rank that ends long before the others.
  for (const Rows& lengths : {Rows{5, 9, 3, 1}, Rows{6, 5, 8}, Rows{2, 40}}) {
    const auto total = std::reduce(lengths.begin(), lengths.end());
    for (const int workers : {0, 2}) {
      if (workers > 0 && lengths.size() < 4) continue;
      const auto ranks = read_on_ranks(2, [&](const ProcessGroup& group) {
        const DataLoader whole(tensors(numbers(lengths)), {.batch_size = 4, .num_workers = workers});
        DataLoader part = whole.shard(group, at::kCPU);
        Batches batches;
        for (auto& batch : part) {
          batches.push_back(rows_of(batch));
          const auto progress = part.position_handle().progress().value();
          EXPECT_EQ(progress.position, std::ssize(batches));
          EXPECT_GE(progress.size, progress.position);
          batches.back().push_back(progress.size == progress.position ? -1000 : -2000);
        }
        return batches;
      });
      expect_each_once(ranks, total);
      ASSERT_EQ(ranks[0].size(), ranks[1].size());
      for (const auto& batches : ranks) {
        for (std::size_t batch = 0; batch < batches.size(); ++batch) {
          ASSERT_EQ(batches[batch].size(), 5U);
          EXPECT_EQ(batches[batch].back(), batch + 1 == batches.size() ? -1000 : -2000);
        }
      }
    }
  }
  // A rank that has ended repeats its first batch, and completes its last one with it.
  const auto ranks = read_on_ranks(2, [&](const ProcessGroup& group) {
    DataLoader part = DataLoader(tensors(numbers({3, 6})), {.batch_size = 2}).shard(group, at::kCPU);
    return read(part);
  });
  EXPECT_EQ(ranks[0], (Batches{{0, 1}, {2, -1}, {-1, -2}}));
  EXPECT_EQ(ranks[1], (Batches{{3, 4}, {5, 6}, {7, 8}}));
}

TEST(StreamLoader, WithDropLastRanksEndWithTheFirst) {
  const auto ranks = read_on_ranks(2, [&](const ProcessGroup& group) {
    DataLoader part =
        DataLoader(tensors(numbers({5, 9})), {.batch_size = 2, .drop_last = true}).shard(group, at::kCPU);
    return read(part);
  });
  EXPECT_EQ(ranks[0], (Batches{{0, 1}, {2, 3}}));
  EXPECT_EQ(ranks[1], (Batches{{5, 6}, {7, 8}}));
}

TEST(StreamLoader, AnotherNumberOfRanksContinuesWithThePartsThatThereAre) {
  const Rows lengths{7, 9, 8, 6, 5, 11, 4, 10};
  const auto stream = tensors(numbers(lengths).shuffle(3, 4));
  const auto loader_of = [&](const ProcessGroup& group, int workers) {
    return DataLoader(stream, {.batch_size = 2, .num_workers = workers}).shard(group, at::kCPU);
  };
  for (const int workers : {0, 2}) {
    std::vector<DataLoaderState> states(4);
    const auto begun = read_on_ranks(4, [&](const ProcessGroup& group) {
      auto loader = loader_of(group, workers);
      auto batches = read(loader, 3);
      states[static_cast<std::size_t>(group.rank())] = loader.state();
      return batches;
    });
    auto state = states[0];
    for (std::size_t rank = 1; rank < states.size(); ++rank) state.parts.push_back(states[rank].parts[0]);
    // Of 3 and 5 ranks some have more parts than others, of 9 some have none.
    for (const int ranks : {1, 2, 3, 4, 5, 9}) {
      auto all = read_on_ranks(ranks, [&](const ProcessGroup& group) {
        auto loader = loader_of(group, 1);
        loader.load_state(state);
        return read(loader);
      });
      all.insert(all.end(), begun.begin(), begun.end());
      expect_each_once(all, 60);
    }
    testing::run_group(3, [&](const ProcessGroup& group) {
      auto loader = loader_of(group, workers);
      const auto parts = std::to_string(workers == 0 ? 4 : 8);
      loader = DataLoader(stream, {.batch_size = 2, .drop_last = true}).shard(group, at::kCPU);
      EXPECT_TRUE(contains_all(message_of<UsageError>([&] { loader.load_state(state); }),
                               {parts + " parts", "3 ranks", "divides " + parts}));
    });
    // One rank's own state is enough for itself, and for no other number.
    DataLoader own = DataLoader(stream, {.batch_size = 2, .num_workers = workers})
                         .shard(4, 2, at::kCPU, {.even_batches = false});
    own.load_state(states[2]);
    EXPECT_EQ(own.position(), 3);
    DataLoader alone(stream, {.batch_size = 2});
    EXPECT_TRUE(contains_all(message_of<UsageError>([&] { alone.load_state(states[2]); }), {"rank 2 of 4"}));
  }
}

TEST(StreamLoader, ADispatchedPassContinuesOnAnotherNumberOfRanks) {
  const auto stream = tensors(numbers({9, 8, 7}).shuffle(3, 4));
  const auto loader_of = [&](const ProcessGroup& group) {
    return DataLoader(stream, {.batch_size = 2}).shard(group, at::kCPU, {.dispatch_batches = true});
  };
  std::vector<DataLoaderState> states(3);
  const auto begun = read_on_ranks(3, [&](const ProcessGroup& group) {
    auto loader = loader_of(group);
    auto batches = read(loader, 2);
    states[static_cast<std::size_t>(group.rank())] = loader.state();
    return batches;
  });
  auto state = states[0];
  for (std::size_t rank = 1; rank < states.size(); ++rank) state.parts.push_back(states[rank].parts[0]);
  auto all = read_on_ranks(2, [&](const ProcessGroup& group) {
    auto loader = loader_of(group);
    loader.load_state(state);
    return read(loader);
  });
  all.insert(all.end(), begun.begin(), begun.end());
  expect_each_once(all, 24);
}

TEST(StreamLoader, AFailureIsThrownInOrderAndReachesTheOtherRanks) {
  for (const int workers : {0, 2}) {
    DataLoader loader(tensors(numbers({6, 6}, 4)), {.batch_size = 2, .num_workers = workers});
    Batches batches;
    const auto error = message_of<DataError>([&] {
      for (auto& batch : loader) batches.push_back(rows_of(batch));
    });
    EXPECT_TRUE(contains_all(error, {"epoch 0", "broken row"}));
    const auto before = workers == 0 ? Batches{{0, 1}, {2, 3}} : Batches{{0, 1}, {6, 7}, {2, 3}, {8, 9}};
    EXPECT_EQ(batches, before);
    EXPECT_EQ(loader.position(), std::ssize(before));
  }
  for (const bool dispatch : {false, true}) {
    testing::run_group(2, [&](const ProcessGroup& group) {
      DataLoader loader = DataLoader(tensors(numbers({6, 6}, 4)), {.batch_size = 2})
                              .shard(group, at::kCPU, {.dispatch_batches = dispatch});
      const auto error = message_of<DataError>([&] { read(loader); });
      const auto* const other = dispatch ? "rank 0, which reads the stream for all" : "another rank";
      EXPECT_TRUE(contains_all(error, {group.rank() == 0 ? "broken row" : other})) << error;
    });
  }
  testing::run_group(2, [&](const ProcessGroup& group) {
    DataLoader loader = DataLoader(tensors(numbers({0, 6})), {.batch_size = 2}).shard(group, at::kCPU);
    EXPECT_TRUE(
        contains_all(message_of<UsageError>([&] { read(loader); }), {"no row", "even_batches=false"}));
  });
}

TEST(StreamLoader, SizeSkippingAndRefusals) {
  const auto data = numbers({10});
  const auto stream = tensors(data);
  DataLoader loader(stream, {.batch_size = 4});
  EXPECT_TRUE(loader.is_stream());
  EXPECT_FALSE(loader.has_size());
  EXPECT_THROW(loader.size(), UsageError);
  EXPECT_THROW(loader.dataset(), UsageError);
  EXPECT_EQ(DataLoader(std::make_shared<IterableTensorDataset>(data, IterableTensorOptions{.size = 10}),
                       {.batch_size = 4})
                .size(),
            3);
  loader.skip_batches(2);
  EXPECT_EQ(loader.position(), 2);
  EXPECT_THROW(loader.skip_batches(2), UsageError);
  EXPECT_EQ(loader.position(), 2) << "a skip that fails changes nothing";
  EXPECT_EQ(read(loader), (Batches{{8, 9}}));
  EXPECT_THROW(loader.skip_batches(4), UsageError);
  EXPECT_EQ(loader.epoch(), 1);
  EXPECT_THROW(DataLoader(stream, {.shuffle = true}), UsageError);
  EXPECT_THROW(static_cast<void>(loader.shard(2, 0)), UsageError);
  DataLoader twice = DataLoader(tensors(split_dataset_by_node(data, 0, 2)), {.batch_size = 4})
                         .shard(2, 0, at::kCPU, {.even_batches = false});
  EXPECT_TRUE(contains_all(message_of<DataError>([&] { read(twice); }), {"already split", "whole stream"}));
  DataLoader other(tensors(numbers({11})), {.batch_size = 4});
  EXPECT_EQ(read(other, 1).size(), 1U);
  EXPECT_NO_THROW(loader.load_state(other.state())) << "a generator has no names";
  auto state = other.state();
  state.parts = {"{}"};
  EXPECT_TRUE(contains_all(message_of<UsageError>([&] { loader.load_state(state); }), {"damaged"}));
  DataLoader more(tensors(numbers({5, 5})), {.batch_size = 4});
  EXPECT_THROW(more.load_state(other.state()), UsageError);
}

TEST(IterableTensors, RowsBecomeTensors) {
  const auto stream = [](Value value, IterableTensorOptions options = {}) {
    const auto data = IterableDataset::from_generator(1, [value](std::int64_t) {
      return [value, done = false]() mutable -> std::optional<Value::Fields> {
        if (std::exchange(done, true)) return std::nullopt;
        return Value::Fields{{"x", value}, {"text", Value("a")}, {"none", Value()}};
      };
    });
    const IterableTensorDataset tensors(data, std::move(options));
    return *tensors.open({}, 0, {})->next();
  };
  const auto equals = [](const Batch& row, const at::Tensor& expected) {
    EXPECT_EQ(row.names(), std::vector<std::string>{"x"});
    EXPECT_EQ(row["x"].scalar_type(), expected.scalar_type());
    EXPECT_TRUE(at::equal(row["x"], expected));
  };
  equals(stream(7), at::scalar_tensor(7, at::kLong));
  equals(stream(0.5), at::scalar_tensor(0.5, at::kFloat));
  equals(stream(true), at::scalar_tensor(true, at::kBool));
  equals(stream(Value::List{1, 2.5}), at::tensor({1.0F, 2.5F}));
  equals(stream(Value::List{Value::List{1, 2}, Value::List{3, 4}}), at::arange(1, 5).view({2, 2}));
  equals(stream(Value::List{}), at::empty({0}, at::kLong));
  const Value ragged(Value::List{Value::List{1, 2}, Value::List{3}});
  EXPECT_TRUE(contains_all(message_of<DataError>([&] { stream(ragged); }), {"'x'", "different lengths"}));
  EXPECT_EQ(stream(7, {.columns = {"text"}}).texts("text"), std::vector<std::string>{"a"});
  EXPECT_TRUE(contains_all(message_of<DataError>([&] { stream(7, {.columns = {"none"}}); }), {"'none'"}));
  EXPECT_TRUE(contains_all(message_of<DataError>([&] { stream(7, {.columns = {"y"}}); }), {"no column 'y'"}));
}

}  // namespace
}  // namespace lockstep
