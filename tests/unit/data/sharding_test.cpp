#include "lockstep/data/sharding.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <set>
#include <sstream>

#include "data/batch_plan.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/stream_shard.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using Indices = std::vector<std::int64_t>;
using Batches = std::vector<Indices>;

Indices first_numbers(std::int64_t count) {
  Indices numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

Batches batches_of(const BatchPlan& plan) {
  Batches batches;
  for (std::int64_t number = 0; number < plan.count(); ++number) {
    const auto indices = plan.indices(number);
    batches.emplace_back(indices.begin(), indices.end());
  }
  return batches;
}

Batches batches_of(std::int64_t length, const BatchPlanOptions& options) {
  const auto batches = batches_of(BatchPlan(first_numbers(length), 0, options));
  EXPECT_EQ(count_batches(length, options), static_cast<std::int64_t>(batches.size()));
  return batches;
}

Indices streamed(std::int64_t length, const BatchPlanOptions& options) {
  std::int64_t next = 0;
  StreamShard<std::int64_t> shard(
      [&]() -> std::optional<std::int64_t> { return next < length ? std::optional(next++) : std::nullopt; },
      options);
  Indices samples;
  while (const auto row = shard.next()) {
    EXPECT_EQ(row->index, row->sample);
    samples.push_back(row->sample);
  }
  EXPECT_FALSE(shard.next().has_value());
  return samples;
}

/// As sharding_golden.py does.
class Hash {
 public:
  void add(const Batches& batches) {
    for (const auto& batch : batches) {
      for (const auto index : batch) step(static_cast<std::uint32_t>(index + 1));
      step(0);
    }
    step(0xFFFFFFFFU);
  }
  std::string text() const {
    std::ostringstream stream;
    stream << std::hex << value_;
    return stream.str();
  }

 private:
  void step(std::uint32_t number) { value_ = (value_ ^ number) * 0x01000193U; }
  std::uint32_t value_ = 0x811C9DC5U;
};

struct GoldenLine {
  std::string kind;
  std::vector<int> setting;
  std::vector<std::string> answers;
};

std::vector<GoldenLine> golden_lines() {
  std::ifstream file(LOCKSTEP_SHARDING_GOLDEN);
  std::vector<GoldenLine> lines;
  for (std::string text; std::getline(file, text);) {
    GoldenLine line;
    std::istringstream words(text);
    words >> line.kind;
    for (int number = 0; words >> number;) line.setting.push_back(number);
    words.clear();
    words.ignore(2, ':');
    for (std::string answer; words >> answer;) line.answers.push_back(answer);
    lines.push_back(line);
  }
  return lines;
}

BatchPlanOptions options_of(const GoldenLine& line) {
  const auto flag = [&](std::size_t place) { return line.setting[place] == 1; };
  const bool stream = line.kind == "stream";
  return {
      .how = {.sharding = Sharding::by_batch, .split_batches = flag(2), .even_batches = stream || flag(3)},
      .num_replicas = line.setting[1],
      .batch_size = line.setting[0],
      .drop_last = flag(stream ? 3 : 4)};
}

std::string answer(const GoldenLine& line, std::int64_t length) {
  auto options = options_of(line);
  Hash hash;
  for (options.rank = 0; options.rank < options.num_replicas; ++options.rank) {
    hash.add(line.kind == "stream" ? Batches{streamed(length, options)} : batches_of(length, options));
  }
  return hash.text();
}

TEST(Sharding, EqualsAcceleratesRulesInEverySetting) {
  std::map<std::string, int> compared;
  for (const auto& line : golden_lines()) {
    for (std::size_t length = 0; length < line.answers.size(); ++length, ++compared[line.kind]) {
      ASSERT_EQ(answer(line, static_cast<std::int64_t>(length)), line.answers[length])
          << line.kind << " " << ::testing::PrintToString(line.setting) << " length " << length;
    }
  }
  // Of 6 batch sizes and 3 numbers of processes 6 divide; 25 lengths each.
  EXPECT_EQ(compared["batch"], (18 + 6) * 4 * 25);
  EXPECT_EQ(compared["stream"], (18 + 6) * 2 * 25);
}

TEST(Sharding, GivesAcceleratesDocumentedExamples) {
  const BatchPlanOptions whole{
      .how = {.sharding = Sharding::by_batch}, .num_replicas = 2, .rank = 1, .batch_size = 4};
  EXPECT_EQ(batches_of(8, whole), (Batches{{4, 5, 6, 7}}));
  auto split = whole;
  split.how.split_batches = true;
  EXPECT_EQ(batches_of(8, split), (Batches{{2, 3}, {6, 7}}));
  EXPECT_EQ(batches_of(3, whole), (Batches{{1, 2, 0, 1}}));
}

TEST(Sharding, ASingleRankRepeatsNothing) {
  for (const auto sharding : {Sharding::by_sample, Sharding::by_batch}) {
    EXPECT_EQ(batches_of(5, {.how = {.sharding = sharding}, .batch_size = 3}), (Batches{{0, 1, 2}, {3, 4}}));
    EXPECT_EQ(streamed(5, {.how = {.sharding = sharding}, .batch_size = 3}), first_numbers(5));
  }
}

/// Every way of dividing that there is, for small numbers.
std::vector<BatchPlanOptions> all_ways() {
  std::vector<BatchPlanOptions> ways;
  for (int bits = 0; bits < 16; ++bits) {
    const auto sharding = (bits & 1) != 0 ? Sharding::by_batch : Sharding::by_sample;
    const ShardingOptions how{sharding, (bits & 2) != 0, (bits & 4) != 0};
    for (int ranks = 1; ranks <= 4; ++ranks) {
      for (std::int64_t size = 1; size <= 4; ++size) {
        if (how.split_batches && size % ranks != 0) continue;
        ways.push_back({how, ranks, 0, size, (bits & 8) != 0});
      }
    }
  }
  return ways;
}

struct Read {
  std::multiset<std::int64_t> valid;
  std::size_t repeated = 0;
  std::vector<std::size_t> batches;
};

/// What all ranks read together of what is left.
Read read_all(std::int64_t length, std::int64_t consumed, BatchPlanOptions options) {
  Read read;
  const auto order = first_numbers(length);
  for (options.rank = 0; options.rank < options.num_replicas; ++options.rank) {
    const BatchPlan plan(order, consumed, options);
    read.batches.push_back(static_cast<std::size_t>(plan.count()));
    for (std::int64_t number = 0; number < plan.count(); ++number) {
      const auto indices = plan.indices(number);
      const auto valid = static_cast<std::size_t>(plan.valid_rows(number));
      read.valid.insert(indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(valid));
      read.repeated += indices.size() - valid;
    }
  }
  return read;
}

TEST(Sharding, WhateverWasConsumedTheRestIsReadExactlyOnce) {
  for (const auto& options : all_ways()) {
    for (std::int64_t length = 0; length <= 13; ++length) {
      for (std::int64_t consumed = 0; consumed <= length; ++consumed) {
        const auto read = read_all(length, consumed, options);
        const auto left = first_numbers(length);
        std::multiset<std::int64_t> expected(left.begin() + consumed, left.end());
        if (options.drop_last) {
          EXPECT_LT(expected.size() - read.valid.size(),
                    static_cast<std::size_t>(global_batch_size(options)));
          expected = {left.begin() + consumed,
                      left.begin() + consumed + static_cast<std::ptrdiff_t>(read.valid.size())};
        }
        ASSERT_EQ(read.valid, expected);
        const bool even = options.how.even_batches || options.drop_last || options.num_replicas == 1;
        const std::set numbers_of_batches(read.batches.begin(), read.batches.end());
        ASSERT_TRUE(numbers_of_batches.size() == 1 || !even);
        const bool repeats = options.how.even_batches && !options.drop_last && options.num_replicas > 1;
        ASSERT_TRUE(read.repeated == 0 || repeats);
      }
    }
  }
}

TEST(Sharding, GoingOnWithTheSameNumbersGivesTheBatchesThatWouldHaveCome) {
  for (auto options : all_ways()) {
    for (std::int64_t length = 0; length <= 13; ++length) {
      const auto order = first_numbers(length);
      for (options.rank = 0; options.rank < options.num_replicas; ++options.rank) {
        const BatchPlan whole(order, 0, options);
        const auto batches = batches_of(whole);
        for (std::int64_t done = 1; done <= whole.count(); ++done) {
          const BatchPlan rest(order, whole.consumed_after(done - 1), options);
          ASSERT_EQ(batches_of(rest), Batches(batches.begin() + done, batches.end()));
        }
      }
    }
  }
}

TEST(Sharding, RefusesWhatCannotBeDivided) {
  const Indices order{1, 2, 3};
  EXPECT_THROWS(BatchPlan(order, 0, {.num_replicas = 0}), UsageError, "num_replicas", "0");
  EXPECT_THROWS(BatchPlan(order, 0, {.num_replicas = 2, .rank = 2}), UsageError, "rank", "0 to 1");
  EXPECT_THROWS(BatchPlan(order, 0, {.batch_size = 0}), UsageError, "batch_size", "0");
  EXPECT_THROWS(BatchPlan(order, 4, {}), UsageError, "4 samples", "which has 3");
  EXPECT_THROWS(BatchPlan(order, -1, {}), UsageError, "-1");
  EXPECT_THROWS(BatchPlan(order, 0, {.how = {.split_batches = true}, .num_replicas = 2, .batch_size = 3}),
                UsageError, "split_batches", "3", "2 ranks");
}

}  // namespace
}  // namespace lockstep
