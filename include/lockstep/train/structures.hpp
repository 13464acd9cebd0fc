#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <tuple>
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

}  // namespace lockstep
