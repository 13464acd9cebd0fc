#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::parallel {

/// Splits `tensor` along `dim` into at most one chunk per device and copies each chunk to its device, by the
/// rule of torch.chunk, as torch.nn.DataParallel does: of b rows on n devices each gets ceil(b / n), the last
/// one the rest; 5 rows on 4 devices give 3 chunks of 2, 2 and 1. Differentiable. *Local*. Throws UsageError
/// if the tensor does not have that dimension, or if there are no devices.
std::vector<at::Tensor> scatter(const at::Tensor& tensor, const std::vector<at::Device>& devices,
                                std::int64_t dim = 0);

/// Concatenates the tensors along `dim`, on `device`. Scalars, such as each replica's loss, become a vector
/// with one element each. Differentiable. *Local*. Throws UsageError if there are no tensors, or if only some
/// are scalars.
at::Tensor gather(const std::vector<at::Tensor>& tensors, const at::Device& device, std::int64_t dim = 0);

/// The number of parts into which several tensors were scattered, which must be the same for all; `otherwise`
/// if there are no tensors. Throws UsageError if tensors differ.
std::size_t common_parts(const std::vector<std::vector<at::Tensor>>& chunks, std::size_t otherwise);

/// `tensors[r]` are the outputs of replica r, in order; gathers them position by position. Throws UsageError
/// if the replicas returned different numbers of tensors.
std::vector<at::Tensor> gather_each(const std::vector<std::vector<at::Tensor>>& tensors,
                                    const at::Device& device, std::int64_t dim);

/// A copy whose tensors can be replaced without changing `value`: TorchScript's lists and dictionaries are
/// handles.
template <class Value>
Value own_copy(const Value& value) {
  if constexpr (requires { value.deepcopy(); }) {
    return value.isTensor() ? value : value.deepcopy();
  } else {
    return value;
  }
}

/// The same for every tensor in `value`: tensors, tuples and ranges of these, maps by their values (see
/// visit_tensors). Other values are copied to every part. If there are no tensors, there is one part per
/// device.
template <class Value>
std::vector<Value> scatter(const Value& value, const std::vector<at::Device>& devices, std::int64_t dim = 0) {
  Value seen = value;
  std::vector<std::vector<at::Tensor>> chunks;
  visit_tensors(seen, [&](at::Tensor& tensor) { chunks.push_back(scatter(tensor, devices, dim)); });
  std::vector<Value> parts;
  for (std::size_t part = 0; part < common_parts(chunks, devices.size()); ++part) {
    parts.push_back(own_copy(value));
    auto next = chunks.begin();
    visit_tensors(parts.back(), [&](at::Tensor& tensor) { tensor = (*next++)[part]; });
  }
  return parts;
}

/// Combines the values of the replicas: tensors are gathered, and other values are the first replica's. The
/// values must have the same structure.
template <class Value>
Value gather(std::vector<Value> values, const at::Device& device, std::int64_t dim = 0) {
  std::vector<std::vector<at::Tensor>> tensors(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    visit_tensors(values[i], [&](at::Tensor& tensor) { tensors[i].push_back(tensor); });
  const auto joined = gather_each(tensors, device, dim);
  auto next = joined.begin();
  visit_tensors(values.front(), [&](at::Tensor& tensor) { tensor = *next++; });
  return std::move(values.front());
}

}  // namespace lockstep::parallel
