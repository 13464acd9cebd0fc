#include "lockstep/parallel/scatter_gather.hpp"

#include <ATen/ops/cat.h>
#include <fmt/core.h>

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

using Tensors = std::vector<at::Tensor>;

}  // namespace

Tensors scatter(const at::Tensor& tensor, const std::vector<at::Device>& devices, std::int64_t dim) {
  if (devices.empty()) throw UsageError("scatter: expected at least one device, but there is none");
  if (dim >= tensor.dim() || dim < -tensor.dim()) {
    throw UsageError(
        fmt::format("scatter: expected tensors with dimension {} to cut along, but one has {} dimensions. "
                    "Pass numbers as numbers, or give each sample its own.",
                    dim, tensor.dim()));
  }
  Tensors chunks = tensor.chunk(static_cast<std::int64_t>(devices.size()), dim);
  for (std::size_t i = 0; i < chunks.size(); ++i) chunks[i] = chunks[i].to(devices[i]);
  return chunks;
}

at::Tensor gather(const Tensors& tensors, const at::Device& device, std::int64_t dim) {
  if (tensors.empty()) throw UsageError("gather: expected at least one tensor, but there is none");
  const auto is_scalar = [](const at::Tensor& tensor) { return tensor.dim() == 0; };
  const auto scalars = std::count_if(tensors.begin(), tensors.end(), is_scalar);
  if (scalars != 0 && scalars != static_cast<std::ptrdiff_t>(tensors.size()))
    throw UsageError("gather: some of the replicas' tensors are scalars and others are not");
  Tensors there;
  for (const auto& tensor : tensors) there.push_back((scalars > 0 ? tensor.unsqueeze(0) : tensor).to(device));
  return at::cat(there, scalars > 0 ? 0 : dim);
}

std::size_t common_parts(const std::vector<Tensors>& chunks, std::size_t otherwise) {
  if (chunks.empty()) return otherwise;
  for (const auto& list : chunks) {
    if (list.size() == chunks.front().size()) continue;
    throw UsageError(
        fmt::format("scatter: one tensor makes {} chunks and another {}: expected tensors with the same "
                    "number of samples",
                    chunks.front().size(), list.size()));
  }
  return chunks.front().size();
}

std::vector<at::Tensor> gather_each(const std::vector<Tensors>& tensors, const at::Device& device,
                                    std::int64_t dim) {
  if (tensors.empty()) throw UsageError("gather: expected what at least one replica returned");
  for (std::size_t replica = 1; replica < tensors.size(); ++replica) {
    if (tensors[replica].size() == tensors[0].size()) continue;
    throw UsageError(fmt::format("gather: replica 0 returned {} tensors and replica {} returned {}",
                                 tensors[0].size(), replica, tensors[replica].size()));
  }
  Tensors joined;
  for (std::size_t place = 0; place < tensors[0].size(); ++place) {
    Tensors of_position;
    for (const auto& of_replica : tensors) of_position.push_back(of_replica[place]);
    joined.push_back(gather(of_position, device, dim));
  }
  return joined;
}

}  // namespace lockstep::parallel
