#include "texts.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "generation.hpp"
#include "lockstep/datasets/tokenize.hpp"

namespace {

void fill_row(at::Tensor& tensor, std::int64_t row, const std::vector<std::int64_t>& values) {
  std::copy(values.begin(), values.end(), tensor.data_ptr<std::int64_t>() + row * tensor.size(1));
}

/// The tokenizer, which cuts long texts on the side that its folder names.
lockstep::Tokenizer truncating_tokenizer(const Options& options) {
  const auto tokenizer =
      lockstep::load_tokenizer(tokenizer_path(options), texts::pretrained_options(options));
  return tokenizer.with_truncation({{.max_length = static_cast<std::size_t>(options.max_length),
                                     .side = tokenizer.settings().truncation_side}});
}

}  // namespace

Texts::Texts(const Options& options, std::int64_t padding, const std::string& device)
    : column_(options.column),
      device_(device),
      tokenizer_(truncating_tokenizer(options)),
      padding_(padding) {}

std::vector<lockstep::tokenizer::Encoding> Texts::encodings(const lockstep::MapBatch& batch) const {
  const auto texts = batch.column<std::string_view>(column_);
  std::vector<lockstep::tokenizer::TextInput> inputs;
  for (std::int64_t i = 0; i < batch.size(); ++i) inputs.push_back({.text = texts[i]});
  return tokenizer_.encode_batch(inputs, {.threads = 1});
}

Tokens Texts::encode(const lockstep::MapBatch& batch) const {
  const auto rows = encodings(batch);
  std::size_t longest = 1;
  for (const auto& row : rows) longest = std::max(longest, row.size());
  const std::vector<std::int64_t> form = {batch.size(), static_cast<std::int64_t>(longest)};
  Tokens tokens{at::full(form, padding_, at::kLong), at::zeros(form, at::kLong), at::zeros(form, at::kLong)};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    fill_row(tokens.ids, row, rows[i].ids);
    fill_row(tokens.mask, row, rows[i].attention_mask);
    fill_row(tokens.types, row, rows[i].type_ids);
  }
  return {tokens.ids.to(device_), tokens.mask.to(device_), tokens.types.to(device_)};
}

Tokens Texts::encode_in_front(const lockstep::MapBatch& batch,
                              const std::function<std::int64_t()>& first_token) const {
  std::vector<std::vector<std::int64_t>> rows;
  std::size_t longest = 0;
  for (const auto& row : encodings(batch)) {
    rows.emplace_back(row.ids.begin(), row.ids.end());
    if (rows.back().empty()) rows.back().push_back(first_token());
    longest = std::max(longest, rows.back().size());
  }
  const std::vector<std::int64_t> form = {std::ssize(rows), static_cast<std::int64_t>(longest)};
  Tokens tokens{at::full(form, padding_, at::kLong), at::zeros(form, at::kLong), {}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i), count = std::ssize(rows[i]);
    tokens.ids[row].slice(0, -count).copy_(at::tensor(rows[i], at::kLong));
    tokens.mask[row].slice(0, -count).fill_(1);
  }
  return {tokens.ids.to(device_), tokens.mask.to(device_), {}};
}

std::vector<std::string> Texts::decode(const at::Tensor& tokens, std::int64_t first) const {
  const at::Tensor all = tokens.cpu().contiguous();
  std::vector<std::string> texts;
  for (std::int64_t row = 0; row < all.size(0); ++row) {
    const auto* begin = all.data_ptr<std::int64_t>() + row * all.size(1);
    const auto* end = std::find(begin + first, begin + all.size(1), kNoToken);
    texts.push_back(tokenizer_.decode(std::vector<std::int64_t>(begin + first, end)));
  }
  return texts;
}
