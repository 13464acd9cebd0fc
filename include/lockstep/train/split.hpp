#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/data/batch.hpp"

namespace lockstep {

/// Which of `length` things are one process's: [begin, end), and `repeats` times the last of all behind them.
///
/// The blocks are contiguous and in rank order; of n things on W processes the first n mod W get one more.
/// With padding every process gets ceil(n / W): the last thing of all is repeated where there are fewer.
/// Nothing is repeated where there is nothing. As Hugging Face Accelerate's split_between_processes.
struct SplitRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t repeats = 0;
};

/// *Local*. Throws UsageError for a rank out of range.
SplitRange split_range(std::int64_t length, int num_processes, int rank, bool apply_padding);

// split_length() and split_part() say how a kind of collection is counted and taken apart. A type of one's
// own can be given to split_between_processes() when it has both beside it.

/// How a kind of collection is taken apart. The length of a tensor or a Batch is its number of rows. All are
/// *Local*, copy what they return and leave their argument as it is.
template <class Value>
std::int64_t split_length(const std::vector<Value>& values) {
  return static_cast<std::int64_t>(values.size());
}
template <class Value>
std::vector<Value> split_part(const std::vector<Value>& values, const SplitRange& range) {
  std::vector<Value> part(values.begin() + range.begin, values.begin() + range.end);
  if (range.repeats > 0) part.insert(part.end(), static_cast<std::size_t>(range.repeats), values.back());
  return part;
}

/// Throws UsageError for a scalar.
std::int64_t split_length(const at::Tensor& tensor);
at::Tensor split_part(const at::Tensor& tensor, const SplitRange& range);

/// `indices` and `valid` are taken apart with the rows; a repeated row is not valid. Throws UsageError where
/// tensors have different numbers of rows.
std::int64_t split_length(const Batch& batch);
Batch split_part(const Batch& batch, const SplitRange& range);

/// Throws UsageError, naming the lengths, unless all are equal; 0 without any.
std::int64_t common_split_length(const std::vector<std::int64_t>& lengths);

/// The values of a map, or the members of a tuple, are taken apart alike and need equal lengths.
template <class Value>
std::int64_t split_length(const std::map<std::string, Value>& values) {
  std::vector<std::int64_t> lengths;
  for (const auto& [name, value] : values) lengths.push_back(split_length(value));
  return common_split_length(lengths);
}
template <class Value>
std::map<std::string, Value> split_part(const std::map<std::string, Value>& values, const SplitRange& range) {
  std::map<std::string, Value> part;
  for (const auto& [name, value] : values) part.emplace(name, split_part(value, range));
  return part;
}
template <class... Values>
std::int64_t split_length(const std::tuple<Values...>& values) {
  return std::apply([](const Values&... each) { return common_split_length({split_length(each)...}); },
                    values);
}
template <class... Values>
std::tuple<Values...> split_part(const std::tuple<Values...>& values, const SplitRange& range) {
  return std::apply([&](const Values&... each) { return std::tuple<Values...>{split_part(each, range)...}; },
                    values);
}

/// What split_between_processes() takes.
template <class Inputs>
concept Splittable = requires(const Inputs& inputs, const SplitRange& range) {
  split_length(inputs);
  split_part(inputs, range);
};

}  // namespace lockstep
