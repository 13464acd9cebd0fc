#include "lockstep/data/collate.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset.hpp"

namespace lockstep {
namespace {

std::string called(const std::vector<Example>& examples, std::size_t index) {
  const auto& indices = examples[index].indices;
  if (indices.size() == 1) return fmt::format("sample {}", indices.front());
  return fmt::format("sample number {} of the batch", index);
}

std::string describe_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return fmt::format("shape [{}] {} on {}", fmt::join(tensor.sizes(), ", "), tensor.dtype().name(),
                     tensor.device().str());
}

bool alike(const at::Tensor& left, const at::Tensor& right) {
  return left.defined() && right.defined() && left.sizes() == right.sizes() &&
         left.dtype() == right.dtype() && left.device() == right.device();
}

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

template <typename Items>
bool has_name(const Items& items, const std::string& name) {
  return std::any_of(items.begin(), items.end(), [&](const auto& item) { return item.first == name; });
}

/// `items` selects a Batch's tensors or its texts.
template <typename Items>
void check_names(const std::vector<Example>& examples, std::size_t index, const char* kind,
                 const Items& (Batch::*items)() const noexcept) {
  const auto& first = (examples.front().*items)();
  const auto& other = (examples[index].*items)();
  for (const auto* side : {&first, &other}) {
    const auto& absent_from = side == &first ? other : first;
    for (const auto& [name, value] : *side) {
      if (has_name(absent_from, name)) continue;
      throw DataError(
          fmt::format("cannot stack {} with {}: only one of them has {} named '{}'. Every sample of a data "
                      "set needs the same names.",
                      called(examples, index), called(examples, 0), kind, name));
    }
  }
}

void check_names(const std::vector<Example>& examples) {
  for (std::size_t index = 1; index < examples.size(); ++index) {
    check_names(examples, index, "a tensor", &Batch::items);
    check_names(examples, index, "a text", &Batch::text_items);
  }
}

void append(std::vector<std::string>& texts, const std::vector<std::string>& more) {
  texts.insert(texts.end(), more.begin(), more.end());
}

/// Texts, indices and `valid` are concatenated, not stacked.
void concatenate_rows(const std::vector<Example>& examples, Batch& batch) {
  for (const auto& item : examples.front().text_items()) {
    std::vector<std::string> texts;
    for (const auto& example : examples) append(texts, example.texts(item.first));
    batch.set_texts(item.first, std::move(texts));
  }
  const bool marked = std::ranges::any_of(examples, [](const Example& one) { return !one.valid.empty(); });
  for (const auto& example : examples) {
    batch.indices.insert(batch.indices.end(), example.indices.begin(), example.indices.end());
    if (marked) batch.valid.push_back(example.valid.empty() || example.valid.front());
  }
}

at::Tensor stacked(const std::vector<Example>& examples, const std::string& name) {
  std::vector<at::Tensor> rows;
  rows.reserve(examples.size());
  for (std::size_t index = 0; index < examples.size(); ++index) {
    const auto& row = examples[index][name];
    const auto& first = index == 0 ? row : rows.front();
    if (!alike(row, first)) {
      throw DataError(fmt::format(
          "cannot stack '{}' of {}, which is {}, with {}, which is {}. Bring them to one shape, "
          "or give the loader a collate function that pads.",
          name, called(examples, index), describe_tensor(row), called(examples, 0), describe_tensor(first)));
    }
    rows.push_back(row);
  }
  return at::stack(rows);
}

/// Concatenates the samples' tensors of a name, and returns them with their offsets.
std::pair<at::Tensor, at::Tensor> jagged(const std::vector<Example>& examples, const std::string& name) {
  std::vector<at::Tensor> lists;
  std::vector<std::int64_t> offsets{0};
  for (std::size_t index = 0; index < examples.size(); ++index) {
    const auto& example = examples[index];
    if (!example.contains(name) || example[name].dim() == 0) {
      throw DataError(called(examples, index) + " has no list '" + name + "', which jagged_collate joins.");
    }
    const at::Tensor& list = example[name];
    const at::Tensor& first = index == 0 ? list : lists.front();
    if (list.dtype() != first.dtype() || list.device() != first.device() ||
        list.sizes().slice(1) != first.sizes().slice(1)) {
      throw DataError("cannot join '" + name + "' of " + called(examples, index) + ", which is " +
                      describe_tensor(list) + ", with " + called(examples, 0) + ", which is " +
                      describe_tensor(first) + ". Lists may differ in their first dimension only.");
    }
    lists.push_back(list);
    offsets.push_back(offsets.back() + lists.back().size(0));
  }
  return {at::cat(lists), at::tensor(offsets, at::kLong)};
}

using Side = PaddingCollateOptions::Side;

void check_positive(const char* what, std::int64_t value) {
  if (value >= 1) return;
  throw UsageError(fmt::format("{} must be 1 or more, but is {}.", what, value));
}

std::int64_t fill_of(const std::string& name, const PaddingCollateOptions& options) {
  if (name == "input_ids") return options.pad_token_id;
  if (name == "labels") return options.label_pad_token_id;
  if (name == "token_type_ids") return options.pad_token_type_id;
  return name == "special_tokens_mask" ? 1 : 0;
}

/// int64 for a sequence of integers or booleans: smaller types cannot hold every padding.
at::Tensor widened(const at::Tensor& tensor) {
  const bool integers = tensor.defined() && at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
  return integers && tensor.dim() == 1 ? tensor.to(at::kLong) : tensor;
}

/// The labels of a causal language model, except that padding is filled with label_pad_token_id.
const at::Tensor& input_ids_of(const Example& example) {
  if (example.contains("input_ids")) return example["input_ids"];
  throw DataError("causal_lm_collate: a sample has no 'input_ids': tokenize the texts first.");
}

/// Names `labels` as Hugging Face's collators do, and adds them for a causal language model, and an attention
/// mask.
Example completed(const Example& example, const PaddingCollateOptions& options, bool causal) {
  Example renamed;
  for (const auto& [given, tensor] : example.items()) {
    if (causal && given == "special_tokens_mask") continue;
    const bool labels = given == "label_ids" || (given == "label" && !causal);
    const std::string name = labels ? "labels" : given;
    renamed.insert(name, is_among(options.names, name) ? widened(tensor) : tensor);
  }
  for (const auto& [name, texts] : example.text_items()) renamed.set_texts(name, texts);
  renamed.indices = example.indices;
  if (causal && !renamed.contains("labels")) renamed.insert("labels", input_ids_of(renamed));
  // Packed texts are kept apart by their positions, and see no padding behind them.
  const bool is_packed = causal && renamed.contains("position_ids") && options.side == Side::right;
  if (renamed.contains("input_ids") && !renamed.contains("attention_mask") && !is_packed) {
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

/// Of such a batch, a training would learn nothing, and an evaluation would have a loss of 0. Nothing
/// predicts the first token of a row.
void check_trained(const char* collate, const Batch& batch, std::int64_t ignored) {
  const at::Tensor& labels = batch["labels"];
  if (labels.dim() != 2 || labels.slice(1, 1).ne(ignored).any().item<bool>()) return;
  const std::string numbers =
      batch.indices.empty() ? "" : fmt::format(" (number {})", fmt::join(batch.indices, ", "));
  throw DataError(fmt::format(
      "{}: none of the samples of a batch{} has a token to train on: all labels behind the first are {}. "
      "Leave such samples out before the training, as tokenize_chats() and sft do for max_length above 0, or "
      "check what marks the tokens that are trained on: a mask of the assistant's tokens, a prompt that "
      "fills "
      "max_length, an empty completion.",
      collate, numbers, ignored));
}

/// The tokens of the longest text that positions tell apart; at least 1.
std::int64_t longest_text(const std::vector<Example>& examples) {
  std::int64_t tokens = 1;
  for (const auto& example : examples) {
    if (!is_sequence(example, "position_ids") || example["position_ids"].numel() == 0) continue;
    tokens = std::max(tokens, example["position_ids"].max().item<std::int64_t>() + 1);
  }
  return tokens;
}

Batch collate_padded(std::vector<Example> examples, const PaddingCollateOptions& options, bool causal) {
  for (auto& example : examples) example = completed(example, options, causal);
  const auto length = longest(examples, options);
  const auto text = longest_text(examples);
  for (auto& example : examples) {
    for (const auto& name : options.names) {
      if (!is_sequence(example, name)) continue;
      at::Tensor values = padded(example[name], length, fill_of(name, options), options.side);
      // Of packed texts, the padding is more texts. A position that no token has might lie behind the
      // model's last one, and changes how rotary positions that grow with the longest text turn all others.
      const auto own = example[name].size(0);
      if (causal && name == "position_ids" && options.side == Side::right && own < length)
        values.narrow(0, own, length - own).copy_(at::arange(length - own).remainder(text));
      example.set(name, values);
    }
  }
  Batch batch = default_collate(std::move(examples));
  if (causal) check_trained("causal_lm_collate", batch, options.label_pad_token_id);
  return batch;
}

CollateFunction padding_collate(PaddingCollateOptions options, bool causal) {
  check_positive("pad_to_multiple_of", options.pad_to_multiple_of);
  // The mask that completed() adds is as long as the input_ids.
  if (is_among(options.names, "input_ids")) options.names.emplace_back("attention_mask");
  return [options = std::move(options), causal](std::vector<Example> examples) {
    return collate_padded(std::move(examples), options, causal);
  };
}

}  // namespace

Batch default_collate(std::vector<Example> examples) {
  if (examples.empty()) throw UsageError("default_collate was given no samples: a batch needs at least one.");
  check_names(examples);
  Batch batch;
  for (const auto& item : examples.front().items()) batch.insert(item.first, stacked(examples, item.first));
  concatenate_rows(examples, batch);
  return batch;
}

CollateFunction jagged_collate(std::vector<std::string> names) {
  return [names = std::move(names)](const std::vector<Example>& examples) {
    if (examples.empty()) throw UsageError("jagged_collate was given no samples.");
    check_names(examples);
    Batch batch;
    for (const auto& item : examples.front().items()) {
      const auto& name = item.first;
      if (!is_among(names, name)) batch.insert(name, stacked(examples, name));
    }
    for (const auto& name : names) {
      auto [values, offsets] = jagged(examples, name);
      batch.insert(name, std::move(values));
      batch.insert(name + "_offsets", std::move(offsets));
    }
    concatenate_rows(examples, batch);
    return batch;
  };
}

CollateFunction pad_collate(PaddingCollateOptions options) {
  return padding_collate(std::move(options), /*causal=*/false);
}

CollateFunction causal_lm_collate(PaddingCollateOptions options) {
  return padding_collate(std::move(options), /*causal=*/true);
}

CollateFunction flatten_collate(FlatteningOptions options) {
  return [options](const std::vector<Example>& examples) {
    std::vector<at::Tensor> ids, labels, positions, numbers;
    for (std::size_t index = 0; index < examples.size(); ++index) {
      const Example& example = examples[index];
      const bool has_ids = example.contains("input_ids") && example["input_ids"].dim() == 1;
      const at::Tensor text = has_ids ? widened(example["input_ids"]) : at::Tensor();
      const at::Tensor wanted = example.contains("labels") ? widened(example["labels"]) : text;
      if (!has_ids || wanted.sizes() != text.sizes()) {
        throw DataError(fmt::format(
            "sample {} of a batch has {}, which flatten_collate joins.", index,
            has_ids ? "labels of another shape than its input_ids" : "no input_ids of one dimension"));
      }
      const auto length = text.size(0);
      if (length == 0) continue;
      labels.push_back(wanted.clone());
      labels.back()[0] = options.separator_id;
      positions.push_back(at::arange(length, at::kLong));
      numbers.push_back(at::full({length}, static_cast<std::int64_t>(ids.size()), at::kInt));
      ids.push_back(text);
    }
    if (examples.empty()) throw UsageError("flatten_collate was given no samples.");
    if (ids.empty()) throw DataError("flatten_collate: no sample of a batch has a token.");
    Batch batch{{"input_ids", at::cat(ids).unsqueeze(0)}, {"labels", at::cat(labels).unsqueeze(0)}};
    if (options.return_position_ids) batch.insert("position_ids", at::cat(positions).unsqueeze(0));
    if (options.return_seq_idx) batch.insert("seq_idx", at::cat(numbers).unsqueeze(0));
    for (const auto& example : examples)
      batch.indices.insert(batch.indices.end(), example.indices.begin(), example.indices.end());
    check_trained("flatten_collate", batch, options.separator_id);
    return batch;
  };
}

}  // namespace lockstep
