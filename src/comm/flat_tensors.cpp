#include "flat_tensors.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <string>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

using Tensors = std::vector<at::Tensor>;

std::vector<std::int64_t> sizes_of(const Tensors& tensors) {
  std::vector<std::int64_t> sizes;
  for (const auto& tensor : tensors) sizes.push_back(tensor.numel());
  return sizes;
}

}  // namespace

FlatTensors flattened(const Tensors& tensors) {
  Tensors rows;
  for (const auto& tensor : tensors) rows.push_back(tensor.detach().reshape({-1}));
  return {at::cat(rows), sizes_of(tensors)};
}

FlatTensors flat_space_for(const Tensors& tensors) {
  std::int64_t total = 0;
  for (const auto& tensor : tensors) total += tensor.numel();
  return {at::empty({total}, tensors.front().options()), sizes_of(tensors)};
}

void copy_out(const FlatTensors& flat, const Tensors& tensors) {
  std::int64_t start = 0;
  for (const auto& tensor : tensors) {
    tensor.detach().copy_(flat.buffer.narrow(0, start, tensor.numel()).view(tensor.sizes()));
    start += tensor.numel();
  }
}

void check_count(const char* operation, const char* role, const Tensors& tensors, int ranks) {
  if (tensors.size() == static_cast<std::size_t>(ranks)) return;
  throw UsageError(std::string(operation) + ": expected " + std::to_string(ranks) + " " + role +
                   " tensors, one for each rank of the group, but got " + std::to_string(tensors.size()));
}

void check_lists(const Tensors& outputs, const Tensors& inputs, int ranks) {
  check_count("all_to_all", "output", outputs, ranks);
  check_count("all_to_all", "input", inputs, ranks);
  const auto expected = inputs.front().scalar_type();
  for (const auto* list : {&outputs, &inputs}) {
    for (const auto& tensor : *list) {
      if (tensor.scalar_type() == expected) continue;
      throw UsageError(std::string("all_to_all: expected tensors of one dtype, but got ") +
                       c10::toString(expected) + " and " + c10::toString(tensor.scalar_type()));
    }
  }
}

}  // namespace lockstep::comm
