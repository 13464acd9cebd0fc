#include "lockstep/tokenizers/tokenizer.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "tokenizers/encoding.hpp"
#include "tokenizers/tokenizer_parts.hpp"

namespace lockstep {
namespace {

using tokenizer::Draft;
using tokenizer::EncodeOptions;
using tokenizer::Encoding;
using tokenizer::TextInput;

/// The number of tokens that truncation leaves for the texts.
std::size_t room(const tokenizer::Truncation& truncation, std::size_t added) {
  if (truncation.max_length >= added) return truncation.max_length - added;
  throw UsageError(fmt::format("truncation to {} tokens has no room for the {} special tokens of a pair.",
                               truncation.max_length, added));
}

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(const Tokenizer&) noexcept = default;
Tokenizer& Tokenizer::operator=(const Tokenizer&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::with_truncation(std::optional<tokenizer::Truncation> truncation) const {
  if (truncation) tokenizer::check_truncation(*truncation, *parts_->pipeline);
  auto parts = std::make_shared<Parts>(*parts_);
  parts->truncation = truncation;
  return Tokenizer(std::move(parts));
}

Tokenizer Tokenizer::with_padding(std::optional<tokenizer::Padding> padding) const {
  auto parts = std::make_shared<Parts>(*parts_);
  parts->padding = padding;
  return Tokenizer(std::move(parts));
}

const std::optional<tokenizer::Truncation>& Tokenizer::truncation() const noexcept {
  return parts_->truncation;
}

const std::optional<tokenizer::Padding>& Tokenizer::padding() const noexcept { return parts_->padding; }

const tokenizer::PretrainedSettings& Tokenizer::settings() const noexcept { return parts_->settings; }

std::optional<std::int64_t> Tokenizer::special_token_id(const std::string& name) const {
  const auto& tokens = parts_->settings.special_tokens;
  const auto found = tokens.find(name);
  return found == tokens.end() ? std::nullopt : token_to_id(found->second);
}

Tokenizer Tokenizer::for_targets() const {
  if (!parts_->target) return *this;
  auto parts = std::make_shared<Parts>(*parts_);
  parts->encodes_targets = true;
  return Tokenizer(std::move(parts));
}

/// Everything except padding, which needs the whole batch.
Encoding Tokenizer::encode_input(const TextInput& input, const EncodeOptions& options,
                                 tokenizer::Workspace& workspace) const {
  const auto& pipeline = *parts_->pipeline;
  Draft text = pipeline.encode(input.text, 0, options.return_tokens, workspace);
  Draft second;
  if (input.pair) second = pipeline.encode(*input.pair, 1, options.return_tokens, workspace);
  Draft* pair = input.pair ? &second : nullptr;
  if (const auto& truncation = parts_->truncation) {
    const auto added =
        options.add_special_tokens ? parts_->post_processor().added(input.pair.has_value()) : 0;
    tokenizer::truncate(text, pair, room(*truncation, added), *truncation);
  }
  return parts_->post_processor().process(text, pair, options.add_special_tokens, options.return_tokens);
}

Encoding Tokenizer::encode_one(const TextInput& input, const EncodeOptions& options) const {
  const tokenizer::WorkspacePool::Lease workspace(*parts_->workspaces);
  auto encoding = encode_input(input, options, *workspace);
  if (parts_->padding) tokenizer::pad({&encoding, 1}, *parts_->padding, options.return_tokens);
  return encoding;
}

Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  return encode_one({.text = text}, options);
}

Encoding Tokenizer::encode(std::string_view text, std::string_view pair, const EncodeOptions& options) const {
  return encode_one({.text = text, .pair = pair}, options);
}

std::vector<Encoding> Tokenizer::encode_batch(const std::vector<TextInput>& inputs,
                                              const EncodeOptions& options) const {
  std::vector<Encoding> encodings(inputs.size());
  tokenizer::parallel_for(inputs.size(), options.threads, [&](std::size_t begin, std::size_t end) {
    const tokenizer::WorkspacePool::Lease workspace(*parts_->workspaces);
    for (auto position = begin; position < end; ++position) {
      tokenizer::at_input(position,
                          [&] { encodings[position] = encode_input(inputs[position], options, *workspace); });
    }
  });
  if (parts_->padding) tokenizer::pad(encodings, *parts_->padding, options.return_tokens);
  return encodings;
}

std::vector<Encoding> Tokenizer::encode_batch(const std::vector<std::string>& texts,
                                              const EncodeOptions& options) const {
  std::vector<TextInput> inputs;
  inputs.reserve(texts.size());
  for (const auto& text : texts) inputs.push_back({.text = text});
  return encode_batch(inputs, options);
}

std::string Tokenizer::decode(const std::vector<std::int64_t>& ids,
                              const tokenizer::DecodeOptions& options) const {
  const auto& pipeline = *parts_->pipeline;
  std::vector<std::string> tokens;
  for (const auto id : ids) {
    if (id < 0 || id > std::int64_t{0xFFFFFFFF}) continue;
    const auto* added = pipeline.added.find(static_cast<std::uint32_t>(id));
    if (added != nullptr && options.skip_special_tokens && pipeline.added.is_special(*added)) continue;
    const auto* token =
        added != nullptr ? &added->shown : pipeline.model->vocabulary().token(static_cast<std::uint32_t>(id));
    if (token != nullptr) tokens.push_back(*token);
  }
  pipeline.decoder(tokens);
  std::string text;
  for (const auto& token : tokens) text += token;
  if (parts_->settings.clean_up_tokenization_spaces && !pipeline.model->is_bpe())
    tokenizer::clean_up_text(text);
  return text;
}

std::optional<std::int64_t> Tokenizer::token_to_id(std::string_view token) const {
  if (const auto* added = parts_->pipeline->added.find(token)) return added->id;
  return parts_->pipeline->model->vocabulary().id(token);
}

std::optional<std::string> Tokenizer::id_to_token(std::int64_t id) const {
  if (id < 0 || id > std::int64_t{0xFFFFFFFF}) return std::nullopt;
  const auto number = static_cast<std::uint32_t>(id);
  if (const auto* added = parts_->pipeline->added.find(number)) return added->shown;
  const auto* token = parts_->pipeline->model->vocabulary().token(number);
  return token == nullptr ? std::nullopt : std::optional(*token);
}

std::size_t Tokenizer::vocab_size() const noexcept {
  const auto& vocabulary = parts_->pipeline->model->vocabulary();
  const auto& added = parts_->pipeline->added.tokens;
  const auto is_new = [&](const auto& token) { return vocabulary.token(token.id) == nullptr; };
  return vocabulary.size() + static_cast<std::size_t>(std::count_if(added.begin(), added.end(), is_new));
}

std::string Tokenizer::normalize(std::string_view text) const {
  tokenizer::require_utf8(text, "the text");
  return tokenizer::normalized(parts_->pipeline->normalizer.get(), text);
}

std::vector<tokenizer::PreToken> Tokenizer::pre_tokenize(std::string_view text) const {
  std::vector<std::uint32_t> begins;
  const auto whole = tokenizer::numbered(text, tokenizer::require_utf8(text, "the text"), begins);
  std::vector<tokenizer::PreToken> result;
  if (text.empty()) return result;
  const auto& pre_tokenizer = parts_->pipeline->pre_tokenizer;
  tokenizer::SplitText split;
  pre_tokenizer.split(whole, split);
  for (const auto& word : split.words) {
    const auto bytes = split.text.text.substr(word.begin, word.end - word.begin);
    result.push_back(
        {tokenizer::written(bytes, pre_tokenizer.is_byte_level()), split.text.offsets(word.begin, word.end)});
  }
  return result;
}

}  // namespace lockstep
