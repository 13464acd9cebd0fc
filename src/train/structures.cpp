#include "lockstep/train/structures.hpp"

#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep::train {

std::int64_t first_size_of(const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    if (tensor.defined() && tensor.dim() > 0) return tensor.size(0);
  }
  throw UsageError(fmt::format("find_batch_size: none of the {} tensors has a dimension.", tensors.size()));
}

std::vector<at::Tensor> concatenated(const std::vector<std::vector<at::Tensor>>& parts) {
  if (parts.empty()) throw UsageError("concatenate: there is nothing to join.");
  std::vector<at::Tensor> joined;
  for (std::size_t place = 0; place < parts.front().size(); ++place) {
    std::vector<at::Tensor> pieces;
    for (const auto& part : parts) {
      if (part.size() != parts.front().size()) {
        throw UsageError(fmt::format("concatenate: one collection has {} tensors and another {}.",
                                     parts.front().size(), part.size()));
      }
      pieces.push_back(part[place]);
    }
    joined.push_back(at::cat(pieces));
  }
  return joined;
}

}  // namespace lockstep::train

namespace lockstep {

SplitRange split_range(std::int64_t length, int num_processes, int rank, bool apply_padding) {
  if (num_processes < 1 || rank < 0 || rank >= num_processes) {
    throw UsageError(
        fmt::format("split_between_processes: rank {} of {} processes does not exist.", rank, num_processes));
  }
  const auto each = length / num_processes;
  const auto extras = length % num_processes;
  SplitRange range;
  range.begin = rank * each + std::min<std::int64_t>(rank, extras);
  range.end = range.begin + each + (rank < extras ? 1 : 0);
  if (apply_padding && extras > 0 && rank >= extras) range.repeats = 1;
  return range;
}

std::int64_t split_length(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.dim() > 0) return tensor.size(0);
  throw UsageError("split_between_processes: a scalar, or an undefined tensor, has no rows to split.");
}

at::Tensor split_part(const at::Tensor& tensor, const SplitRange& range) {
  const at::Tensor part = tensor.narrow(0, range.begin, range.end - range.begin);
  if (range.repeats == 0) return part.clone();
  std::vector<at::Tensor> rows(static_cast<std::size_t>(range.repeats),
                               tensor.narrow(0, tensor.size(0) - 1, 1));
  rows.insert(rows.begin(), part);
  return at::cat(rows);
}

std::int64_t split_length(const Batch& batch) {
  std::vector<std::int64_t> lengths;
  for (const auto& [name, tensor] : batch.items()) lengths.push_back(split_length(tensor));
  for (const auto& [name, texts] : batch.text_items()) lengths.push_back(split_length(texts));
  return common_split_length(lengths);
}

Batch split_part(const Batch& batch, const SplitRange& range) {
  Batch part;
  for (const auto& [name, tensor] : batch.items()) part.insert(name, split_part(tensor, range));
  for (const auto& [name, texts] : batch.text_items()) part.set_texts(name, split_part(texts, range));
  if (!batch.indices.empty()) part.indices = split_part(batch.indices, range);
  auto valid = batch.valid;
  valid.resize(static_cast<std::size_t>(batch.size()), true);
  part.valid = split_part(valid, {range.begin, range.end, 0});
  part.valid.insert(part.valid.end(), static_cast<std::size_t>(range.repeats), false);
  return part;
}

std::int64_t common_split_length(const std::vector<std::int64_t>& lengths) {
  for (const auto length : lengths) {
    if (length == lengths.front()) continue;
    throw UsageError(
        fmt::format("split_between_processes: the parts have different lengths ({}); they must be equal, so "
                    "that what belongs together stays together.",
                    fmt::join(lengths, ", ")));
  }
  return lengths.empty() ? 0 : lengths.front();
}

}  // namespace lockstep
