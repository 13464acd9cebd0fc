#include "model.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/trainer_model.hpp"
#include "text/adapter.hpp"
#include "text/files.hpp"
#include "text/program.hpp"
#include "text/script.hpp"
#include "text/special_tokens.hpp"
#include "text/tokens.hpp"

namespace {

using lockstep::Batch;
using lockstep::models::AutoModelForCausalLM;
using lockstep::models::CausalLM;
using lockstep::models::ScriptModel;

/// The limit of run_clm.py for models that would take longer blocks.
constexpr std::int64_t kLongestBlock = 1024;

CausalLM new_model(const Options& options, const lockstep::Tokenizer& tokenizer) {
  const auto words = static_cast<std::int64_t>(tokenizer.vocab_size());
  const std::int64_t end = tokenizer.token_to_id("<|endoftext|>").value_or(words - 1);
  return AutoModelForCausalLM::from_config({.model_type = options.model_type,
                                            .vocab_size = words,
                                            .max_position_embeddings = options.n_positions,
                                            .bos_token_id = end,
                                            .eos_token_id = end},
                                           {.hidden_size = options.n_embd,
                                            .num_hidden_layers = options.n_layer,
                                            .num_attention_heads = options.n_head});
}

/// One text, drawn as the model's folder says.
lockstep::models::GenerationConfig sample_settings(const Options& options) {
  return {.max_new_tokens = options.sample_tokens,
          .do_sample = true,
          .seed = options.seed,
          .num_beams = 1,
          .num_return_sequences = 1};
}

CausalLM make_causal_lm(const Options& options, const lockstep::Tokenizer& tokenizer) {
  if (options.model.empty()) return new_model(options, tokenizer);
  const auto config = AutoModelForCausalLM::config_of(options.model);
  texts::check_vocabulary(options.tokenizer, options.model, config.vocab_size);
  // Not only after the training.
  if (!options.prompt.empty())
    static_cast<void>(lockstep::models::generation_settings(options.model, sample_settings(options)));
  if (options.from_scratch && options.dtype != "float32")
    throw lockstep::UsageError("--dtype needs weights to load, but --from-scratch loads none: leave it out.");
  if (options.from_scratch) return AutoModelForCausalLM::from_config(options.model);
  return AutoModelForCausalLM::from_pretrained(options.model, texts::loading_of(options));
}

std::int64_t block_size_of(const Options& options, std::int64_t longest) {
  return texts::choose_length("--block-size", options.block_size, longest, kLongestBlock);
}

std::string sample(const CausalLM& model, const lockstep::Tokenizer& tokenizer, const Options& options,
                   const at::Device& device) {
  const auto prompt = tokenizer.encode(options.prompt).ids;
  const auto longest = model->model_config().max_position_embeddings;
  const auto room = longest - static_cast<std::int64_t>(prompt.size());
  if (prompt.empty() || room < 1) {
    throw lockstep::UsageError(
        fmt::format("--prompt has {} tokens: expected 1 to {}.", prompt.size(), longest - 1));
  }
  model.ptr()->eval();
  const at::Tensor ids = at::tensor(prompt, at::kLong).unsqueeze(0).to(device);
  auto settings = sample_settings(options);
  settings.max_new_tokens = std::min(options.sample_tokens, room);
  const at::Tensor all = lockstep::models::generate(model, ids, settings);
  const at::Tensor row = all.flatten().cpu();
  const auto* first = row.const_data_ptr<std::int64_t>();
  return tokenizer.decode({first, first + row.numel()});
}

std::vector<at::Tensor> inputs_of(const Batch& batch) { return {batch["input_ids"]}; }

LanguageModel make_script(const Options& options) {
  if (options.block_size == 0)
    throw lockstep::UsageError(fmt::format(
        "--block-size is missing: the program {} does not say how many tokens it takes.", options.model));
  if (!options.prompt.empty() || options.from_scratch || options.packing)
    throw lockstep::UsageError(
        "--prompt, --from-scratch and --packing do not work with a TorchScript file as --model.");
  if (texts::has_adapter(options) || options.dtype != "float32")
    throw lockstep::UsageError(
        "--lora-r, --adapter and --dtype do not work with a TorchScript file as --model.");
  ScriptModel script(options.model);
  // A vocabulary is often padded to a round number.
  const at::Tensor scores =
      script.check_fits({texts::trial_tokens(options.block_size)}, {2, options.block_size, -1},
                        fmt::format("--model {} does not fit", options.model));
  texts::check_vocabulary(options.tokenizer, options.model, scores.size(2));
  const auto save = [script, &options](const lockstep::Trainer& trainer) {
    texts::save_script(trainer, script, options.tokenizer);
  };
  return {texts::adapt_script(script, inputs_of), options.block_size, save, nullptr};
}

}  // namespace

LanguageModel make_model(const Options& options, const lockstep::Tokenizer& tokenizer) {
  if (texts::is_script(options.model)) return make_script(options);
  const CausalLM model = make_causal_lm(options, tokenizer);
  texts::add_adapter(model, options.model, options);
  const auto save = [model, &tokenizer, &options](const lockstep::Trainer& trainer) {
    texts::save(trainer, model, options.tokenizer);
    texts::save_special_tokens(trainer, texts::special_tokens_of(tokenizer, /*pads_with_eos=*/false),
                               texts::has_adapter(options) ? options.model : "");
  };
  const auto write = [model, &tokenizer, &options](const at::Device& device) {
    return sample(model, tokenizer, options, device);
  };
  return {lockstep::models::trainer_model(model),
          block_size_of(options, model->model_config().max_position_embeddings), save, write};
}

std::function<lockstep::Loss(const Batch&, const Batch&)> token_loss(const Options& options) {
  return texts::token_loss_of(texts::next_token_labels, options.label_smoothing_factor);
}

lockstep::ComputeMetrics token_accuracy() { return texts::token_accuracy(texts::next_token_labels); }
