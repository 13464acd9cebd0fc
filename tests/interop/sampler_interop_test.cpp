#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <sstream>

#include "interop/python.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/sampler.hpp"

namespace lockstep {
namespace {

using Indices = std::vector<std::int64_t>;

/// One line of sampler_golden.py: "kind numbers : words".
struct Golden {
  std::string text;
  std::string kind;
  Indices numbers;
  std::string expected;
};

std::vector<Golden> golden_lines() {
  std::istringstream output(testing::run_python("sampler_golden.py"));
  std::vector<Golden> lines;
  for (std::string text; std::getline(output, text);) {
    Golden line{text, {}, {}, text.substr(text.find(':') + 1)};
    std::istringstream words(text.substr(0, text.find(':')));
    words >> line.kind;
    for (std::int64_t number = 0; words >> number;) line.numbers.push_back(number);
    lines.push_back(line);
  }
  return lines;
}

std::string printed(const Indices& indices) {
  std::string text;
  for (const auto index : indices) text += " " + std::to_string(index);
  return text;
}

std::string hashed(const Indices& indices) {
  std::uint64_t result = 0xCBF29CE484222325ULL;
  for (const auto index : indices) result = (result ^ static_cast<std::uint64_t>(index)) * 0x100000001B3ULL;
  return " " + std::to_string(result);
}

Indices sampled(const Indices& numbers) {
  const DistributedSampler sampler(numbers[0], {.num_replicas = static_cast<int>(numbers[1]),
                                                .rank = static_cast<int>(numbers[2]),
                                                .shuffle = numbers[3] == 1,
                                                .seed = static_cast<std::uint64_t>(numbers[5]),
                                                .drop_last = numbers[4] == 1});
  const auto indices = sampler.epoch_indices(numbers[6]);
  EXPECT_EQ(static_cast<std::int64_t>(indices.size()), sampler.size());
  return indices;
}

std::string split(const Indices& numbers) {
  const Indices lengths(numbers.begin() + 1, numbers.end());
  std::int64_t size = 0;
  for (const auto length : lengths) size += length;
  const auto dataset = std::make_shared<TensorDataset>(Batch{{"x", at::zeros({size})}});
  std::string text;
  for (const auto& part : random_split(dataset, lengths, static_cast<std::uint64_t>(numbers[0]))) {
    text += printed(part->indices());
  }
  return text;
}

std::string drawn(const Golden& line) {
  const auto& numbers = line.numbers;
  const auto seed = static_cast<std::uint64_t>(numbers[3]);
  const bool replacement = numbers[2] == 1;
  if (line.kind == "random") {
    const RandomSampler sampler(numbers[0],
                                {.seed = seed, .replacement = replacement, .num_samples = numbers[1]});
    return hashed(sampler.epoch_indices(2));
  }
  std::vector<double> weights;
  for (std::int64_t i = 0; i < numbers[0]; ++i) weights.push_back(static_cast<double>(i * 7 % 5) / 8.0);
  const WeightedRandomSampler sampler(weights,
                                      {.num_samples = numbers[1], .replacement = replacement, .seed = seed});
  return hashed(sampler.epoch_indices(2));
}

std::string subset(const Indices& numbers) {
  Indices chosen;
  for (std::int64_t i = 0; i < numbers[0]; ++i) chosen.push_back(i * 3);
  return printed(
      SubsetRandomSampler(3 * numbers[0], chosen, static_cast<std::uint64_t>(numbers[1])).epoch_indices(2));
}

std::string answer(const Golden& line) {
  if (line.kind == "random" || line.kind == "weighted") return drawn(line);
  if (line.kind == "subset") return subset(line.numbers);
  if (line.kind == "split") return split(line.numbers);
  if (line.kind == "hash") return hashed(sampled(line.numbers));
  try {
    return printed(sampled(line.numbers));
  } catch (const UsageError&) {
    return " error";
  }
}

TEST(SamplerInterop, EqualsPyTorchIndexForIndex) {
  std::map<std::string, int> compared;
  std::map<std::string, int> refused;
  for (const auto& line : golden_lines()) {
    ASSERT_EQ(answer(line), line.expected) << line.text;
    ++compared[line.kind];
    if (line.expected == " error") ++refused[line.kind];
  }
  // 31 lengths x 15 ranks of the five worlds, and 2 ranks out of range each, x 36 settings.
  EXPECT_EQ(compared["sampler"], 31 * (15 + 2 * 5) * 36);
  EXPECT_EQ(refused["sampler"], 31 * 2 * 5 * 36);
  EXPECT_EQ(compared["hash"], 3 * (1 + 3 + 8) * 4);
  EXPECT_EQ(compared["split"], 3 * 7);
  EXPECT_EQ(compared["random"], 3 * 2 * 5 * 4);
  EXPECT_EQ(compared["weighted"], 3 * (4 + 3) * 3);
  EXPECT_EQ(compared["subset"], 3 * 4);
}

}  // namespace
}  // namespace lockstep
