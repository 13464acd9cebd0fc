#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/generation_settings.hpp"
#include "models/logits_processors.hpp"

namespace lockstep::models {

/// What generate() continues.
struct GenerationInput {
  /// int64 [rows, length], with padding in front.
  at::Tensor tokens;
  /// 0 for padding; undefined: there is none.
  at::Tensor mask = {};
  /// The source texts of an encoder-decoder; empty: a model without an encoder.
  std::vector<std::vector<std::int64_t>> sources = {};
  /// The model's longest text; 0: not known.
  std::int64_t longest = 0;
};

/// The rows of `tokens` without those where `mask` is 0.
std::vector<std::vector<std::int64_t>> rows_without_padding(const at::Tensor& tokens, const at::Tensor& mask);

/// generate() with these settings.
at::Tensor generate_texts(const TokenModel& model, const GenerationInput& input,
                          const GenerationSettings& settings);

/// The random numbers of samples: from one generator, or from one for each row of the input.
class Draws {
 public:
  /// Throws UsageError unless there is a seed for each row, or none.
  Draws(const GenerationConfig& config, std::int64_t rows);
  /// `count` different places of each row of `probabilities`, as torch.multinomial. Row i is of the input's
  /// row `rows[i]`; rows of the same one are neighbours.
  at::Tensor operator()(const at::Tensor& probabilities, std::int64_t count,
                        const std::vector<std::size_t>& rows);

 private:
  std::vector<at::Generator> generators_;
  bool per_row_;
};

/// The texts in generation, one per row of the prompts.
std::vector<TextSoFar> begun_texts(const GenerationInput& input, const GenerationSettings& settings);

}  // namespace lockstep::models
