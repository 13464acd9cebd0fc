#include "lockstep/data/masking.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include "lockstep/core/error.hpp"
#include "lockstep/data/image_transforms.hpp"

namespace lockstep {
namespace {

constexpr std::int64_t kNotPredicted = -100;

void check_masking(const MaskingOptions& options) {
  const auto probability = [](const char* name, double value, double most) {
    if (value >= 0 && value <= most) return;
    throw UsageError(fmt::format("masking: {} is {}, expected 0 to {:g}", name, value, most));
  };
  probability("mlm_probability", options.mlm_probability, 1);
  probability("mask_replace_prob", options.mask_replace_prob, 1);
  probability("random_replace_prob", options.random_replace_prob, 1 - options.mask_replace_prob + 1e-9);
  if (options.vocab_size < 1 || options.mask_token_id < 0 || options.mask_token_id >= options.vocab_size) {
    throw UsageError(fmt::format("masking: the mask token {} is not in a vocabulary of {} tokens",
                                 options.mask_token_id, options.vocab_size));
  }
}

void check_shape(const char* name, const at::Tensor& tensor, const at::Tensor& input_ids) {
  if (tensor.defined() && tensor.sizes() == input_ids.sizes()) return;
  throw UsageError(fmt::format("masking: {} must have a number for each of the input_ids", name));
}

at::Tensor drawn(const at::Tensor& like, double probability, const at::Generator& generator) {
  return at::bernoulli(at::full(like.sizes(), probability, at::kFloat), generator).to(at::kBool);
}

/// Whether each token begins a word.
at::Tensor begins_word(const at::Tensor& word_ids) {
  at::Tensor before = at::full_like(word_ids, -1);
  const auto last = word_ids.size(-1);
  if (last > 1) before.narrow(-1, 1, last - 1).copy_(word_ids.narrow(-1, 0, last - 1));
  return word_ids.ge(0).logical_and_(word_ids.ne(before));
}

/// Extends the draw of each word's first token to the whole word.
at::Tensor whole_words(const at::Tensor& chosen, const at::Tensor& begins, const at::Tensor& word_ids) {
  // The number of the word in its row, from 1; 0 before the first word.
  const at::Tensor number = begins.to(at::kLong).cumsum(-1);
  auto sizes = number.sizes().vec();
  sizes.back() += 1;
  at::Tensor by_number = at::zeros(sizes, at::kLong);
  by_number.scatter_reduce_(-1, number, chosen.logical_and(begins).to(at::kLong), "amax");
  return by_number.gather(-1, number).to(at::kBool).logical_and_(word_ids.ge(0));
}

}  // namespace

MaskedTokens mask_tokens(const at::Tensor& input_ids, const at::Tensor& keep, const MaskingOptions& options,
                         const at::Generator& generator, const at::Tensor& word_ids) {
  check_masking(options);
  if (input_ids.scalar_type() != at::kLong || !input_ids.is_cpu())
    throw UsageError("masking: input_ids must be int64 on the CPU");
  check_shape("special_tokens_mask", keep, input_ids);
  at::Tensor begins, excluded = keep.to(at::kBool);
  if (options.whole_word_mask) {
    check_shape("word_ids", word_ids, input_ids);
    begins = begins_word(word_ids.masked_fill(excluded, -1));
    excluded = begins.logical_not();
  }
  const at::Tensor odds =
      at::full(input_ids.sizes(), options.mlm_probability, at::kFloat).masked_fill_(excluded, 0);
  at::Tensor chosen = at::bernoulli(odds, generator).to(at::kBool);
  if (options.whole_word_mask)
    chosen = whole_words(chosen, begins, word_ids.masked_fill(keep.to(at::kBool), -1));

  MaskedTokens result{input_ids.clone(), input_ids.masked_fill(chosen.logical_not(), kNotPredicted)};
  const at::Tensor replaced = drawn(input_ids, options.mask_replace_prob, generator).logical_and_(chosen);
  result.input_ids.masked_fill_(replaced, options.mask_token_id);
  if (options.mask_replace_prob == 1 || options.random_replace_prob == 0) return result;
  const double rest = options.random_replace_prob / (1 - options.mask_replace_prob);
  const at::Tensor random =
      drawn(input_ids, rest, generator).logical_and_(chosen).logical_and_(replaced.logical_not());
  const at::Tensor tokens = at::randint(options.vocab_size, input_ids.sizes(), generator, at::kLong);
  result.input_ids = at::where(random, tokens, result.input_ids);
  return result;
}

std::shared_ptr<const Dataset> masked(std::shared_ptr<const Dataset> dataset, MaskingOptions options) {
  check_masking(options);
  const auto mask = [options = std::move(options)](const Batch& batch,
                                                   std::span<const SampleContext> contexts) {
    const at::Tensor ids = batch["input_ids"];
    at::Tensor keep = batch.contains("special_tokens_mask")
                          ? batch["special_tokens_mask"]
                          : at::isin(ids, at::tensor(options.special_token_ids, at::kLong));
    const at::Tensor words = batch.contains("word_ids") ? batch["word_ids"] : at::Tensor();
    const at::Tensor attended = batch.contains("attention_mask") ? batch["attention_mask"].to(at::kBool)
                                                                 : at::ones_like(ids, at::kBool);
    check_shape("special_tokens_mask", keep, ids);
    check_shape("attention_mask", attended, ids);
    if (words.defined()) check_shape("word_ids", words, ids);
    std::vector<at::Tensor> inputs, labels;
    for (std::int64_t row = 0; row < ids.size(0); ++row) {
      const auto generator =
          at::make_generator<at::CPUGeneratorImpl>(contexts[static_cast<std::size_t>(row)].seed);
      // Draws for padding, whose length depends on the batch, would change those for the text.
      const at::Tensor text = attended[row];
      const auto of_text = [&](const at::Tensor& all) { return all[row].masked_select(text); };
      const auto tokens = mask_tokens(of_text(ids), of_text(keep), options, generator,
                                      words.defined() ? of_text(words) : at::Tensor());
      inputs.push_back(ids[row].masked_scatter(text, tokens.input_ids));
      labels.push_back(at::full_like(ids[row], kNotPredicted).masked_scatter(text, tokens.labels));
    }
    Batch result;
    for (const auto& [name, tensor] : batch.items()) {
      if (name == "special_tokens_mask" || name == "word_ids" || name == "labels") continue;
      result.insert(name, name == "input_ids" ? at::stack(inputs) : tensor);
    }
    result.insert("labels", at::stack(labels));
    for (const auto& [name, texts] : batch.text_items()) result.set_texts(name, texts);
    result.indices = batch.indices;
    result.valid = batch.valid;
    return result;
  };
  return std::make_shared<TransformedDataset>(std::move(dataset), mask);
}

}  // namespace lockstep
