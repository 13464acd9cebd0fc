#include "lockstep/train/split.hpp"

#include <ATen/ops/cat.h>

#include "lockstep/core/error.hpp"

namespace lockstep {

SplitRange split_range(std::int64_t length, int num_processes, int rank, bool apply_padding) {
  if (num_processes < 1 || rank < 0 || rank >= num_processes) {
    throw UsageError("split_between_processes: rank " + std::to_string(rank) + " of " +
                     std::to_string(num_processes) + " processes does not exist.");
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
  return common_split_length(lengths);
}

Batch split_part(const Batch& batch, const SplitRange& range) {
  Batch part;
  for (const auto& [name, tensor] : batch.items()) part.insert(name, split_part(tensor, range));
  if (!batch.indices.empty()) part.indices = split_part(batch.indices, range);
  auto valid = batch.valid;
  valid.resize(static_cast<std::size_t>(batch.size()), true);
  part.valid = split_part(valid, {range.begin, range.end, 0});
  part.valid.insert(part.valid.end(), static_cast<std::size_t>(range.repeats), false);
  return part;
}

std::int64_t common_split_length(const std::vector<std::int64_t>& lengths) {
  std::string text;
  for (const auto length : lengths) text += (text.empty() ? "" : ", ") + std::to_string(length);
  for (const auto length : lengths) {
    if (length == lengths.front()) continue;
    throw UsageError("split_between_processes: the parts have different lengths (" + text +
                     "); they must be equal, so that what belongs together stays together.");
  }
  return lengths.empty() ? 0 : lengths.front();
}

}  // namespace lockstep
