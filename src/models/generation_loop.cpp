#include "models/generation_loop.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "lockstep/core/error.hpp"
#include "models/beam_search.hpp"

namespace lockstep::models {
namespace {

using Texts = std::vector<std::vector<std::int64_t>>;

void check_input(const TokenModel& model, const at::Tensor& tokens) {
  if (tokens.dim() != 2 || tokens.size(0) < 1 || tokens.size(1) < 1 || tokens.scalar_type() != at::kLong) {
    throw UsageError("generate takes int64 tokens [rows, length] of at least one row and token; got " +
                     c10::str(tokens.scalar_type()) + " " + c10::str(tokens.sizes()));
  }
  if (!model.next || !model.reorder) throw UsageError("generate needs both functions of a TokenModel");
}

/// Greedy search, or samples: one text is followed for each text that is returned.
Texts followed_texts(const TokenModel& model, const GenerationInput& input,
                     const GenerationSettings& settings, const LogitsProcessors& processors) {
  const auto device = input.tokens.device();
  const bool samples = settings.samples();
  Draws draws(settings.config(), input.tokens.size(0));
  std::vector<TextSoFar> texts;
  std::vector<std::size_t> running;
  std::vector<std::int64_t> origins;
  for (const auto& text : begun_texts(input, settings)) {
    for (std::int64_t i = 0; i < settings.texts_per_row(); ++i) {
      running.push_back(texts.size());
      origins.push_back(static_cast<std::int64_t>(text.row));
      texts.push_back(text);
    }
  }
  at::Tensor logits = model.next(input.tokens);
  settings.check_vocabulary(logits.size(-1));
  if (settings.texts_per_row() > 1) {
    const at::Tensor rows = at::tensor(origins, at::kLong).to(device);
    logits = logits.index_select(0, rows.to(logits.device()));
    model.reorder(rows);
  }
  while (true) {
    std::vector<const TextSoFar*> now;
    std::vector<std::size_t> of_input;
    for (const auto i : running) {
      now.push_back(&texts[i]);
      of_input.push_back(texts[i].row);
    }
    const at::Tensor scores = processors(logits.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true), now);
    const at::Tensor chosen =
        samples ? draws(scores.softmax(-1).cpu(), 1, of_input).flatten() : scores.argmax(-1).cpu();
    std::vector<std::size_t> rest;
    std::vector<std::int64_t> rows, last;
    for (std::size_t i = 0; i < running.size(); ++i) {
      auto& text = texts[running[i]];
      const auto token = chosen.const_data_ptr<std::int64_t>()[i];
      text.tokens.push_back(token);
      if (settings.config().eos_token_id.contains(token) || text.added() >= text.limits.most) continue;
      rest.push_back(running[i]);
      rows.push_back(static_cast<std::int64_t>(i));
      last.push_back(token);
    }
    if (rest.empty()) break;
    if (rest.size() < running.size()) model.reorder(at::tensor(rows, at::kLong).to(device));
    running = std::move(rest);
    logits = model.next(at::tensor(last, at::kLong).to(device).unsqueeze(1));
  }
  Texts all;
  for (auto& text : texts) all.push_back(std::move(text.tokens));
  return all;
}

/// Texts behind their prompts, with padding up to the longest.
at::Tensor as_tensor(const GenerationInput& input, const GenerationSettings& settings, const Texts& prompts,
                     const Texts& texts) {
  const auto per_row = static_cast<std::size_t>(settings.texts_per_row());
  std::vector<std::vector<std::int64_t>> added;
  std::size_t longest = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto prompt = static_cast<std::ptrdiff_t>(prompts[i / per_row].size());
    added.emplace_back(texts[i].begin() + prompt, texts[i].end());
    longest = std::max(longest, added.back().size());
  }
  std::vector<std::int64_t> flat;
  for (auto& row : added) {
    row.resize(longest, settings.padding());
    flat.insert(flat.end(), row.begin(), row.end());
  }
  const at::Tensor table = at::tensor(flat, at::kLong).view({std::ssize(texts), -1});
  const at::Tensor before = input.tokens.repeat_interleave(settings.texts_per_row(), 0);
  return at::cat({before, table.to(before.device())}, 1);
}

}  // namespace

std::vector<std::vector<std::int64_t>> rows_without_padding(const at::Tensor& tokens,
                                                            const at::Tensor& mask) {
  const at::Tensor ids = tokens.cpu().contiguous();
  const at::Tensor shown = mask.defined() ? mask.to(at::kBool).cpu().contiguous() : at::Tensor();
  Texts rows;
  for (std::int64_t row = 0; row < ids.size(0); ++row) {
    auto& text = rows.emplace_back();
    for (std::int64_t i = row * ids.size(1); i < (row + 1) * ids.size(1); ++i) {
      if (!shown.defined() || shown.const_data_ptr<bool>()[i])
        text.push_back(ids.const_data_ptr<std::int64_t>()[i]);
    }
  }
  return rows;
}

Draws::Draws(const GenerationConfig& config, std::int64_t rows) : per_row_(!config.row_seeds.empty()) {
  if (per_row_ && std::ssize(config.row_seeds) != rows) {
    throw UsageError(fmt::format("generate: row_seeds has {} seeds, expected one for each of the {} rows",
                                 config.row_seeds.size(), rows));
  }
  for (const auto seed : per_row_ ? config.row_seeds : std::vector{config.seed})
    generators_.push_back(at::make_generator<at::CPUGeneratorImpl>(seed));
}

at::Tensor Draws::operator()(const at::Tensor& probabilities, std::int64_t count,
                             const std::vector<std::size_t>& rows) {
  if (!per_row_) return probabilities.multinomial(count, false, generators_.front());
  std::vector<at::Tensor> drawn;
  for (std::size_t first = 0; first < rows.size();) {
    std::size_t end = first;
    while (end < rows.size() && rows[end] == rows[first]) ++end;
    const at::Tensor part =
        probabilities.narrow(0, static_cast<std::int64_t>(first), static_cast<std::int64_t>(end - first));
    drawn.push_back(part.multinomial(count, false, generators_.at(rows[first])));
    first = end;
  }
  return at::cat(drawn);
}

std::vector<TextSoFar> begun_texts(const GenerationInput& input, const GenerationSettings& settings) {
  std::vector<TextSoFar> texts;
  for (auto& tokens : rows_without_padding(input.tokens, input.mask)) {
    if (tokens.empty())
      throw UsageError("generate: a row of attention_mask is 0 everywhere: its text is empty");
    const auto length = std::ssize(tokens);
    texts.push_back({.tokens = std::move(tokens),
                     .prompt = length,
                     .limits = settings.limits(length, input.longest, !input.sources.empty()),
                     .row = texts.size()});
  }
  return texts;
}

at::Tensor generate_texts(const TokenModel& model, const GenerationInput& input,
                          const GenerationSettings& settings) {
  check_input(model, input.tokens);
  const at::NoGradGuard no_grad;
  const Texts prompts = rows_without_padding(input.tokens, input.mask);
  const LogitsProcessors processors(settings, input.sources.empty() ? prompts : input.sources);
  const Texts texts = settings.beams() > 1 ? BeamSearch(model, input, settings, processors).run()
                                           : followed_texts(model, input, settings, processors);
  return as_tensor(input, settings, prompts, texts);
}

at::Tensor generate(const TokenModel& model, const at::Tensor& tokens, const GenerationConfig& config) {
  return generate_texts(model, {.tokens = tokens}, GenerationSettings(config, {}, ""));
}

}  // namespace lockstep::models
