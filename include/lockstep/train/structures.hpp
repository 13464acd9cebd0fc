#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/data/batch.hpp"

namespace lockstep {

// Collections of tensors, as models return and metrics take them: a tensor, a Batch, a vector, a map with
// names, a pair or a tuple of such, in any depth. Everything here is *Local*.
//
//     const auto on_host = map_tensors(outputs, [](const at::Tensor& tensor) { return tensor.cpu(); });
//
// A type of one's own takes part when it has a map_tensors() of its own beside it.

/// The same collection with `function(tensor)` in place of each tensor. Tensors are visited in the
/// collection's order, which is the same on every rank that built the collection in the same way: so the
/// function may be collective. Of a Batch, `indices` and `valid` are copied.
template <class Function>
at::Tensor map_tensors(const at::Tensor& tensor, const Function& function) {
  return function(tensor);
}
template <class Function>
Batch map_tensors(const Batch& batch, const Function& function) {
  Batch result = batch;
  for (const auto& [name, tensor] : batch.items()) result.set(name, function(tensor));
  return result;
}
template <class Value, class Function>
std::vector<Value> map_tensors(const std::vector<Value>& values, const Function& function);
template <class Value, class Function>
std::map<std::string, Value> map_tensors(const std::map<std::string, Value>& values,
                                         const Function& function);
template <class... Values, class Function>
std::tuple<Values...> map_tensors(const std::tuple<Values...>& values, const Function& function);
template <class First, class Second, class Function>
std::pair<First, Second> map_tensors(const std::pair<First, Second>& values, const Function& function) {
  auto first = map_tensors(values.first, function);
  return {std::move(first), map_tensors(values.second, function)};
}

template <class Value, class Function>
std::vector<Value> map_tensors(const std::vector<Value>& values, const Function& function) {
  std::vector<Value> result;
  result.reserve(values.size());
  for (const auto& value : values) result.push_back(map_tensors(value, function));
  return result;
}

template <class Value, class Function>
std::map<std::string, Value> map_tensors(const std::map<std::string, Value>& values,
                                         const Function& function) {
  std::map<std::string, Value> result;
  for (const auto& [name, value] : values) result.emplace(name, map_tensors(value, function));
  return result;
}

template <class... Values, class Function>
std::tuple<Values...> map_tensors(const std::tuple<Values...>& values, const Function& function) {
  // Braces, unlike a call's parentheses, are evaluated from left to right.
  return std::apply(
      [&](const Values&... each) { return std::tuple<Values...>{map_tensors(each, function)...}; }, values);
}

namespace train {
template <class Type>
    struct IsCollection : std::bool_constant < requires(const Type& value) {
  map_tensors(value, [](const at::Tensor& tensor) { return tensor; });
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

/// What the functions below take: see the top of this file.
template <class Type>
concept TensorCollection = train::IsCollection<Type>::value;

/// The tensors of a collection in its order.
template <class Collection>
std::vector<at::Tensor> tensors_of(const Collection& collection) {
  std::vector<at::Tensor> tensors;
  map_tensors(collection, [&](const at::Tensor& tensor) {
    tensors.push_back(tensor);
    return tensor;
  });
  return tensors;
}

namespace train {
/// The library's own: rows of the first tensor that has any, and the i-th tensors of collections joined.
std::int64_t first_size_of(const std::vector<at::Tensor>& tensors);
std::vector<at::Tensor> concatenated(const std::vector<std::vector<at::Tensor>>& parts);
}  // namespace train

/// The number of rows (dimension 0) of the first tensor that has that dimension. Throws UsageError where none
/// has.
template <class Collection>
std::int64_t find_batch_size(const Collection& collection) {
  return train::first_size_of(tensors_of(collection));
}

/// The rows [begin, end) of each tensor, as views: the rules of Python's slices, negative numbers count from
/// the end. Of a Batch, `indices` and `valid` are copied whole.
template <class Collection>
Collection slice_tensors(const Collection& collection, std::int64_t begin, std::int64_t end) {
  return map_tensors(collection, [&](const at::Tensor& tensor) { return tensor.slice(0, begin, end); });
}

/// The collections joined along dimension 0, tensor by tensor, in the form of the first one. Throws
/// UsageError without any, and where their numbers of tensors differ; LibTorch's error where shapes do.
template <class Collection>
Collection concatenate(const std::vector<Collection>& collections) {
  std::vector<std::vector<at::Tensor>> parts;
  for (const auto& collection : collections) parts.push_back(tensors_of(collection));
  const auto joined = train::concatenated(parts);
  auto next = joined.begin();
  return map_tensors(collections.front(), [&](const at::Tensor&) { return *next++; });
}

}  // namespace lockstep
