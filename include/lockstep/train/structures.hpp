#pragma once

#include <ATen/core/Tensor.h>
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/data/batch.hpp"

namespace lockstep {

// Collections of tensors, as models return and metrics take them: a tensor, a Batch, or a vector, a map by
// name, a pair or a tuple of these, nested to any depth. Everything here is *Local*.
//
//     const auto on_host = tree_map(outputs, [](const at::Tensor& tensor) { return tensor.cpu(); });
//
// Your own type is a collection if its namespace has a tree_map() for it.

/// A copy of the collection with `function(tensor)` in place of each tensor. Tensors are visited in the
/// collection's order, which is the same on every rank that built it in the same way; so the function may be
/// collective. Texts, `indices` and `valid` of a Batch are copied.
template <class Function>
at::Tensor tree_map(const at::Tensor& tensor, const Function& function) {
  return function(tensor);
}
template <class Function>
Batch tree_map(const Batch& batch, const Function& function) {
  Batch result = batch;
  for (const auto& [name, tensor] : batch.items()) result.set(name, function(tensor));
  return result;
}
template <class Value, class Function>
std::vector<Value> tree_map(const std::vector<Value>& values, const Function& function);
template <class Value, class Function>
std::map<std::string, Value> tree_map(const std::map<std::string, Value>& values, const Function& function);
template <class... Values, class Function>
std::tuple<Values...> tree_map(const std::tuple<Values...>& values, const Function& function);
template <class First, class Second, class Function>
std::pair<First, Second> tree_map(const std::pair<First, Second>& values, const Function& function) {
  auto first = tree_map(values.first, function);
  return {std::move(first), tree_map(values.second, function)};
}

template <class Value, class Function>
std::vector<Value> tree_map(const std::vector<Value>& values, const Function& function) {
  std::vector<Value> result;
  result.reserve(values.size());
  for (const auto& value : values) result.push_back(tree_map(value, function));
  return result;
}

template <class Value, class Function>
std::map<std::string, Value> tree_map(const std::map<std::string, Value>& values, const Function& function) {
  std::map<std::string, Value> result;
  for (const auto& [name, value] : values) result.emplace(name, tree_map(value, function));
  return result;
}

template <class... Values, class Function>
std::tuple<Values...> tree_map(const std::tuple<Values...>& values, const Function& function) {
  // A braced list, unlike the arguments of a call, is evaluated from left to right.
  return std::apply([&](const Values&... each) { return std::tuple<Values...>{tree_map(each, function)...}; },
                    values);
}

/// parallel::visit_tensors for a Batch that a module returns: calls `visit(at::Tensor&)` for each tensor.
template <class Visit>
void visit_tensors_of(Batch& batch, const Visit& visit) {
  for (auto [name, tensor] : std::vector<Batch::Item>(batch.items().begin(), batch.items().end())) {
    if (!tensor.defined()) continue;
    visit(tensor);
    batch.set(name, tensor);
  }
}

namespace train {
template <class Type>
    struct IsCollection : std::bool_constant < requires(const Type& value) {
  tree_map(value, [](const at::Tensor& tensor) { return tensor; });
} > {};
template <class Value>
struct IsCollection<std::vector<Value>> : IsCollection<Value> {};
template <class Value>
struct IsCollection<std::map<std::string, Value>> : IsCollection<Value> {};
template <class... Values>
struct IsCollection<std::tuple<Values...>> : std::conjunction<IsCollection<Values>...> {};
template <class First, class Second>
struct IsCollection<std::pair<First, Second>> : std::conjunction<IsCollection<First>, IsCollection<Second>> {
};
}  // namespace train

/// What the functions below accept: see the top of this file.
template <class Type>
concept TensorCollection = train::IsCollection<Type>::value;

/// The tensors of a collection, in its order.
template <class Collection>
std::vector<at::Tensor> tensors_of(const Collection& collection) {
  std::vector<at::Tensor> tensors;
  tree_map(collection, [&](const at::Tensor& tensor) {
    tensors.push_back(tensor);
    return tensor;
  });
  return tensors;
}

namespace train {
/// Internal: rows of the first tensor that has any, and the i-th tensors of collections concatenated.
std::int64_t first_size_of(const std::vector<at::Tensor>& tensors);
std::vector<at::Tensor> concatenated(const std::vector<std::vector<at::Tensor>>& parts);
}  // namespace train

/// The number of rows (dimension 0) of the first tensor that has that dimension. Throws UsageError if none
/// has.
template <class Collection>
std::int64_t find_batch_size(const Collection& collection) {
  return train::first_size_of(tensors_of(collection));
}

/// The rows [begin, end) of each tensor, as views, by the rules of Python's slices: negative numbers count
/// from the end. Texts, `indices` and `valid` of a Batch are copied completely.
template <class Collection>
Collection slice_tensors(const Collection& collection, std::int64_t begin, std::int64_t end) {
  return tree_map(collection, [&](const at::Tensor& tensor) { return tensor.slice(0, begin, end); });
}

/// Concatenates the collections along dimension 0, tensor by tensor, in the structure of the first one.
/// Throws UsageError if there are none or their numbers of tensors differ; LibTorch's error if shapes differ.
template <class Collection>
Collection concatenate(const std::vector<Collection>& collections) {
  std::vector<std::vector<at::Tensor>> parts;
  for (const auto& collection : collections) parts.push_back(tensors_of(collection));
  const auto joined = train::concatenated(parts);
  auto next = joined.begin();
  return tree_map(collections.front(), [&](const at::Tensor&) { return *next++; });
}

/// Which of `length` items are one process's: [begin, end), followed by the last item of all `repeats` times.
///
/// The blocks are contiguous and in rank order; of n items on W processes, the first n mod W processes get
/// one more. With padding every process gets ceil(n / W): those with fewer repeat the last item of all.
/// Nothing is repeated if there are no items. As Hugging Face Accelerate's split_between_processes.
struct SplitRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t repeats = 0;
};

/// *Local*. Throws UsageError if the rank is out of range.
SplitRange split_range(std::int64_t length, int num_processes, int rank, bool apply_padding);

// split_length() and split_part() define the length of a kind of collection and how to split it.
// split_between_processes() accepts your own type if its namespace has both.

/// The length of a tensor or a Batch is its number of rows. All of these are *Local*, copy what they return,
/// and do not modify their argument.
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

/// Texts, `indices` and `valid` are split with the rows; a repeated row is not valid. Throws UsageError if
/// tensors or texts have different numbers of rows.
std::int64_t split_length(const Batch& batch);
Batch split_part(const Batch& batch, const SplitRange& range);

/// Throws UsageError, which lists the lengths, unless all are equal; 0 if there are none.
std::int64_t common_split_length(const std::vector<std::int64_t>& lengths);

/// The values of a map, or the members of a tuple, are split in the same way and must have equal lengths.
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

/// What split_between_processes() accepts.
template <class Inputs>
concept Splittable = requires(const Inputs& inputs, const SplitRange& range) {
  split_length(inputs);
  split_part(inputs, range);
};

}  // namespace lockstep
