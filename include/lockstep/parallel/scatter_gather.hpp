#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::parallel {

/// `tensor` cut along `dim` into at most one chunk for each device, and each chunk on its device: the rule of
/// torch.chunk, which torch.nn.DataParallel follows. Of b rows on n devices each gets ceil(b / n), the last
/// one what is left; 5 rows on 4 devices make 3 chunks of 2, 2 and 1. Gradients flow back. *Local*. Throws
/// UsageError for a tensor without that dimension, and without devices.
std::vector<at::Tensor> scatter(const at::Tensor& tensor, const std::vector<at::Device>& devices,
                                std::int64_t dim = 0);

/// The tensors one after the other along `dim`, on `device`. Scalars, such as each replica's loss, become a
/// vector with one element each. Gradients flow back. *Local*. Throws UsageError without tensors and where
/// some are scalars and others are not.
at::Tensor gather(const std::vector<at::Tensor>& tensors, const at::Device& device, std::int64_t dim = 0);

/// How many parts there are, where several tensors were scattered: as many as each has chunks, or
/// `otherwise` without tensors. Throws UsageError where tensors differ.
std::size_t common_parts(const std::vector<std::vector<at::Tensor>>& chunks, std::size_t otherwise);

/// `tensors[r]` are what replica r returned, in order; gathers each by its place. Throws UsageError when the
/// replicas returned different numbers of tensors.
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

/// The same for every tensor of `value`: tensors, tuples and ranges of such, maps by their values (see
/// visit_tensors). What is no tensor goes to every part. Without any tensor there is one part a device.
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

/// One value from those of the replicas: its tensors are gathered, and what is no tensor is the first
/// replica's. The values must be built alike.
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
