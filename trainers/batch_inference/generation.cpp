#include "generation.hpp"

#include <fmt/core.h>

#include "lockstep/core/error.hpp"

namespace {

namespace models = lockstep::models;

/// New tokens if neither the options nor the folder have a length.
constexpr std::int64_t kNewTokens = 32;

/// One text per row, whatever the folder says.
models::GenerationConfig given(const Options& options) {
  return {.max_new_tokens = options.max_new_tokens,
          .do_sample = options.do_sample,
          .temperature = options.temperature,
          .top_k = options.top_k,
          .top_p = options.top_p,
          .num_beams = options.num_beams,
          .num_return_sequences = 1};
}

models::GenerationConfig with_folder(const Options& options) {
  return models::generation_settings(options.model, given(options));
}

/// --seed alone is allowed without sampling: scripts pass it to every program.
void refuse_flags_of_samples(const Options& options) {
  const auto refuse = [](const char* name) {
    throw lockstep::UsageError(fmt::format("--{} is for sampling: it needs --do-sample.", name));
  };
  if (options.temperature) refuse("temperature");
  if (options.top_k) refuse("top-k");
  if (options.top_p) refuse("top-p");
}

}  // namespace

bool is_generation(const Options& options) {
  return options.task == "text-generation" || options.task == "translation";
}

models::GenerationConfig generation_of(const Options& options) {
  const auto all = with_folder(options);
  if (!all.do_sample.value_or(false)) refuse_flags_of_samples(options);
  auto config = given(options);
  if (!all.max_new_tokens && !all.max_length) config.max_new_tokens = kNewTokens;
  config.pad_token_id = kNoToken;
  return config;
}

bool draws_tokens(const Options& options) {
  return is_generation(options) && with_folder(options).do_sample.value_or(false);
}
