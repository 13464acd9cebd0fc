#include "lockstep/data/collate.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>

#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset.hpp"

namespace lockstep {
namespace {

std::string called(const std::vector<Example>& examples, std::size_t place) {
  const auto& indices = examples[place].indices;
  if (indices.size() == 1) return "sample " + std::to_string(indices.front());
  return "sample number " + std::to_string(place) + " of the batch";
}

std::string described(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::ostringstream text;
  text << "shape " << tensor.sizes() << " " << tensor.dtype() << " on " << tensor.device();
  return text.str();
}

bool alike(const at::Tensor& left, const at::Tensor& right) {
  return left.defined() && right.defined() && left.sizes() == right.sizes() &&
         left.dtype() == right.dtype() && left.device() == right.device();
}

void check_names(const std::vector<Example>& examples, std::size_t place) {
  const auto& first = examples.front();
  const auto& other = examples[place];
  for (const auto* pair : {&first, &other}) {
    const auto& absent_from = pair == &first ? other : first;
    for (const auto& [name, tensor] : pair->items()) {
      if (absent_from.contains(name)) continue;
      throw DataError("cannot stack " + called(examples, place) + " with " + called(examples, 0) +
                      ": only one of them has a tensor named '" + name +
                      "'. Every sample of a data set needs the same names.");
    }
  }
}

at::Tensor stacked(const std::vector<Example>& examples, const std::string& name) {
  std::vector<at::Tensor> rows;
  rows.reserve(examples.size());
  for (std::size_t place = 0; place < examples.size(); ++place) {
    const auto& row = examples[place][name];
    const auto& first = place == 0 ? row : rows.front();
    if (!alike(row, first)) {
      throw DataError("cannot stack '" + name + "' of " + called(examples, place) + ", which is " +
                      described(row) + ", with " + called(examples, 0) + ", which is " + described(first) +
                      ". Bring them to one shape, or give the loader a collate function that pads.");
    }
    rows.push_back(row);
  }
  return at::stack(rows);
}

}  // namespace

Batch default_collate(std::vector<Example> examples) {
  if (examples.empty()) throw UsageError("default_collate was given no samples: a batch needs at least one.");
  for (std::size_t place = 1; place < examples.size(); ++place) check_names(examples, place);
  Batch batch;
  for (const auto& item : examples.front().items()) batch.insert(item.first, stacked(examples, item.first));
  for (const auto& example : examples) {
    batch.indices.insert(batch.indices.end(), example.indices.begin(), example.indices.end());
  }
  return batch;
}

namespace {

using Side = PaddingCollateOptions::Side;

void check_positive(const char* what, std::int64_t value) {
  if (value >= 1) return;
  throw UsageError(std::string(what) + " must be 1 or more, but is " + std::to_string(value) + ".");
}

std::int64_t fill_of(const std::string& name, const PaddingCollateOptions& options) {
  if (name == "input_ids") return options.pad_token_id;
  if (name == "labels") return options.label_pad_token_id;
  if (name == "token_type_ids") return options.pad_token_type_id;
  return name == "special_tokens_mask" ? 1 : 0;
}

/// The sample under Hugging Face's names, with a mask.
Example completed(const Example& example) {
  Example renamed;
  for (const auto& [name, tensor] : example.items()) {
    renamed.insert(name == "label" || name == "label_ids" ? "labels" : name, tensor);
  }
  renamed.indices = example.indices;
  if (renamed.contains("input_ids") && !renamed.contains("attention_mask")) {
    renamed.insert("attention_mask", at::ones_like(renamed["input_ids"]));
  }
  return renamed;
}

bool is_sequence(const Example& example, const std::string& name) {
  return example.contains(name) && example[name].defined() && example[name].dim() == 1;
}

std::int64_t longest(const std::vector<Example>& examples, const PaddingCollateOptions& options) {
  std::int64_t length = 0;
  for (const auto& example : examples) {
    for (const auto& name : options.names) {
      if (is_sequence(example, name)) length = std::max(length, example[name].size(0));
    }
  }
  const auto multiple = options.pad_to_multiple_of;
  return (length + multiple - 1) / multiple * multiple;
}

at::Tensor padded(const at::Tensor& sequence, std::int64_t length, std::int64_t fill, Side side) {
  const auto missing = length - sequence.size(0);
  if (missing == 0) return sequence;
  const auto before = side == Side::left ? missing : 0;
  return at::constant_pad_nd(sequence, {before, missing - before}, fill);
}

/// Padding fills labels by itself.
void add_labels(Example& example) {
  if (example.contains("labels") || example.contains("label_ids")) return;
  if (!example.contains("input_ids")) {
    throw DataError("causal_lm_collate: a sample has no 'input_ids': tokenize the texts first.");
  }
  example.insert("labels", example["input_ids"]);
}

Batch collate_padded(std::vector<Example> examples, const PaddingCollateOptions& options) {
  for (auto& example : examples) example = completed(example);
  const auto length = longest(examples, options);
  for (auto& example : examples) {
    for (const auto& name : options.names) {
      if (!is_sequence(example, name)) continue;
      example.set(name, padded(example[name], length, fill_of(name, options), options.side));
    }
  }
  return default_collate(std::move(examples));
}

at::Tensor blocks_of(const std::vector<Example>& examples, const std::string& name, std::int64_t size) {
  std::vector<at::Tensor> sequences;
  sequences.reserve(examples.size());
  for (const auto& example : examples) sequences.push_back(example[name]);
  const at::Tensor joined = at::cat(sequences);
  const auto rows = joined.size(0) / size;
  return joined.narrow(0, 0, rows * size).view({rows, size});
}

/// Sequences of one sample belong together token by token.
void check_sequences(const Example& example, std::size_t place, const Example& first) {
  std::int64_t length = -1;
  for (const auto& name : first.names()) {
    const at::Tensor tensor = example.contains(name) ? example[name] : at::Tensor();
    const bool sequence = tensor.defined() && tensor.dim() == 1;
    if (sequence && length == -1) length = tensor.size(0);
    if (sequence && tensor.size(0) == length) continue;
    throw DataError("cannot pack sample number " + std::to_string(place) + ": '" + name + "' is " +
                    (sequence ? "of length " + std::to_string(tensor.size(0)) + ", not " +
                                    std::to_string(length) + " as the one before"
                              : "no sequence of one dimension") +
                    ". Pack tokens only, and drop the other columns first.");
  }
}

/// The packed rows of the samples `begin` to `end` - 1.
Batch packed_part(const Dataset& dataset, std::int64_t begin, std::int64_t end, std::int64_t block_size) {
  std::vector<Example> examples;
  for (std::int64_t index = begin; index < end; ++index) examples.push_back(dataset.get_named(index, {}));
  return group_texts(examples, block_size);
}

}  // namespace

CollateFunction pad_collate(PaddingCollateOptions options) {
  check_positive("pad_to_multiple_of", options.pad_to_multiple_of);
  return [options](std::vector<Example> examples) { return collate_padded(std::move(examples), options); };
}

CollateFunction causal_lm_collate(PaddingCollateOptions options) {
  const CollateFunction pad = pad_collate(std::move(options));
  return [pad](std::vector<Example> examples) {
    for (auto& example : examples) add_labels(example);
    return pad(std::move(examples));
  };
}

CollateFunction flatten_collate(FlatteningOptions options) {
  return [options](const std::vector<Example>& examples) {
    std::vector<at::Tensor> ids, labels, positions, numbers;
    for (std::size_t place = 0; place < examples.size(); ++place) {
      const Example& example = examples[place];
      const bool has_ids = example.contains("input_ids") && example["input_ids"].dim() == 1;
      const at::Tensor text = has_ids ? example["input_ids"] : at::Tensor();
      const at::Tensor wanted = example.contains("labels") ? example["labels"] : text;
      if (!has_ids || wanted.sizes() != text.sizes()) {
        throw DataError(
            "sample " + std::to_string(place) + " of a batch has " +
            (has_ids ? "labels of another shape than its input_ids" : "no input_ids of one dimension") +
            ", which flatten_collate joins.");
      }
      const auto length = text.size(0);
      ids.push_back(text);
      labels.push_back(wanted.clone());
      if (length > 0) labels.back()[0] = options.separator_id;
      positions.push_back(at::arange(length, at::kLong));
      numbers.push_back(at::full({length}, static_cast<std::int64_t>(place), at::kInt));
    }
    if (examples.empty()) throw UsageError("flatten_collate was given no samples.");
    Batch batch{{"input_ids", at::cat(ids).unsqueeze(0)}, {"labels", at::cat(labels).unsqueeze(0)}};
    if (options.return_position_ids) batch.insert("position_ids", at::cat(positions).unsqueeze(0));
    if (options.return_seq_idx) batch.insert("seq_idx", at::cat(numbers).unsqueeze(0));
    for (const auto& example : examples)
      batch.indices.insert(batch.indices.end(), example.indices.begin(), example.indices.end());
    return batch;
  };
}

Batch group_texts(const std::vector<Example>& examples, std::int64_t block_size) {
  check_positive("block_size", block_size);
  if (examples.empty()) throw UsageError("group_texts was given no samples.");
  for (std::size_t place = 0; place < examples.size(); ++place) {
    check_sequences(examples[place], place, examples.front());
  }
  Batch batch;
  for (const auto& name : examples.front().names()) batch.insert(name, blocks_of(examples, name, block_size));
  if (batch.contains("input_ids") && !batch.contains("labels")) {
    batch.insert("labels", batch["input_ids"].clone());
  }
  return batch;
}

CollateFunction pack_collate(std::int64_t block_size) {
  check_positive("block_size", block_size);
  return [block_size](std::vector<Example> examples) { return group_texts(examples, block_size); };
}

std::shared_ptr<const Dataset> packed(const Dataset& dataset, const PackingOptions& options) {
  const auto size = dataset.size();
  const auto step = options.batch_size == 0 ? std::max<std::int64_t>(size, 1) : options.batch_size;
  check_positive("batch_size", step);
  std::vector<Batch> parts;
  for (std::int64_t begin = 0; begin < size; begin += step) {
    parts.push_back(packed_part(dataset, begin, std::min(begin + step, size), options.block_size));
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
