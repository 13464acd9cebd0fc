#include "lockstep/data/packing.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "data/packed_texts.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/collate.hpp"
#include "lockstep/data/dataset.hpp"

namespace lockstep {
namespace {

void check_sizes(const PackingOptions& options) {
  if (options.block_size >= 1 && options.batch_size >= 0) return;
  throw UsageError(fmt::format(
      "packing needs a block_size of 1 or more and a batch_size of 0 or more, but they are {} and {}.",
      options.block_size, options.batch_size));
}

at::Tensor blocks_of(const std::vector<Example>& examples, const std::string& name, std::int64_t size) {
  std::vector<at::Tensor> sequences;
  sequences.reserve(examples.size());
  for (const auto& example : examples) sequences.push_back(example[name]);
  const at::Tensor joined = at::cat(sequences);
  const auto rows = joined.size(0) / size;
  return joined.narrow(0, 0, rows * size).view({rows, size});
}

/// The sequences of one sample must have the same length, and the names and dtypes of the first sample's.
void check_sequences(const Example& example, std::size_t number, const Example& first) {
  std::int64_t length = -1;
  if (example.names().size() > first.names().size())
    throw DataError(fmt::format(
        "cannot pack sample number {}: it has columns that the first one does not have.", number));
  for (const auto& name : first.names()) {
    const at::Tensor tensor = example.contains(name) ? example[name] : at::Tensor();
    const bool sequence = tensor.defined() && tensor.dim() == 1;
    if (sequence && tensor.dtype() != first[name].dtype())
      throw DataError(fmt::format("cannot pack sample number {}: '{}' is of {}, that of the first one of {}.",
                                  number, name, c10::toString(tensor.scalar_type()),
                                  c10::toString(first[name].scalar_type())));
    if (sequence && length == -1) length = tensor.size(0);
    if (sequence && tensor.size(0) == length) continue;
    throw DataError(fmt::format(
        "cannot pack sample number {}: '{}' is {}. Pack tokens only, and drop the other columns first.",
        number, name,
        sequence ? fmt::format("of length {}, not {} as the one before", tensor.size(0), length)
                 : "no sequence of one dimension"));
  }
}

/// The end of each text in the concatenated tokens.
std::vector<std::int64_t> ends_of(const std::vector<Example>& examples) {
  std::vector<std::int64_t> ends;
  for (const auto& example : examples)
    ends.push_back((ends.empty() ? 0 : ends.back()) + example.items().front().second.size(0));
  return ends;
}

void keep_apart(Batch& batch, const std::vector<Example>& examples, const PackingOptions& options) {
  const auto texts = data::packed_texts(ends_of(examples), options.block_size);
  const auto blocks = [&](const std::vector<std::int64_t>& numbers) {
    return at::tensor(numbers, at::kLong).view({-1, options.block_size});
  };
  const at::Tensor positions = blocks(texts.position_ids);
  if (batch.contains("labels")) {
    const at::Tensor labels = batch["labels"];
    const bool integers = at::isIntegralType(labels.scalar_type(), /*includeBool=*/true);
    // Smaller types cannot hold every separator_id.
    batch.set("labels",
              (integers ? labels.to(at::kLong) : labels).masked_fill(positions.eq(0), options.separator_id));
  }
  if (options.return_position_ids) batch.set("position_ids", positions);
  if (options.return_seq_idx) batch.set("seq_idx", blocks(texts.seq_idx));
}

/// The packed rows of the samples `begin` to `end` - 1.
Batch packed_part(const Dataset& dataset, std::int64_t begin, std::int64_t end,
                  const PackingOptions& options) {
  std::vector<Example> examples;
  for (std::int64_t index = begin; index < end; ++index) examples.push_back(dataset.get_named(index, {}));
  return group_texts(examples, options);
}

}  // namespace

Batch group_texts(const std::vector<Example>& examples, const PackingOptions& options) {
  check_sizes(options);
  if (examples.empty()) throw UsageError("group_texts was given no samples.");
  for (std::size_t number = 0; number < examples.size(); ++number) {
    check_sequences(examples[number], number, examples.front());
  }
  Batch batch;
  for (const auto& name : examples.front().names())
    batch.insert(name, blocks_of(examples, name, options.block_size));
  if (batch.contains("input_ids") && !batch.contains("labels")) {
    batch.insert("labels", batch["input_ids"].clone());
  }
  if (options.return_position_ids || options.return_seq_idx) keep_apart(batch, examples, options);
  return batch;
}

CollateFunction pack_collate(PackingOptions options) {
  check_sizes(options);
  return [options](const std::vector<Example>& examples) { return group_texts(examples, options); };
}

std::shared_ptr<const Dataset> packed(const Dataset& dataset, const PackingOptions& options) {
  check_sizes(options);
  const auto size = dataset.size();
  const auto step = options.batch_size == 0 ? std::max<std::int64_t>(size, 1) : options.batch_size;
  std::vector<Batch> parts;
  for (std::int64_t begin = 0; begin < size; begin += step) {
    parts.push_back(packed_part(dataset, begin, std::min(begin + step, size), options));
  }
  if (parts.empty()) throw UsageError("packed: the data set has no samples.");
  Batch whole;
  for (const auto& name : parts.front().names()) {
    std::vector<at::Tensor> rows;
    for (const auto& part : parts) rows.push_back(part[name]);
    whole.insert(name, at::cat(rows));
  }
  return std::make_shared<const TensorDataset>(std::move(whole));
}

}  // namespace lockstep
