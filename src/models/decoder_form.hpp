#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/models/decoder.hpp"

namespace lockstep::models {

/// Where a family says which layers have a window: nowhere, one for all layers, or by layer_types.
enum class DecoderWindows { none, all, typed };

/// The defaults of a family's configuration class in transformers, and which fields it has.
struct DecoderForm {
  const char* model_type;
  const char* architecture;
  std::int64_t vocab_size, hidden_size, intermediate_size, layers, heads;
  /// 0: as many as heads.
  std::int64_t key_heads = 0;
  /// 0: hidden_size / heads.
  std::int64_t head_dim = 0;
  std::int64_t longest;
  double eps = 1e-6;
  double theta = 10000;
  bool tied = false;
  std::optional<std::int64_t> padding = {}, bos = {}, eos = {};
  const char* activation_field = "hidden_act";
  const char* activation = "silu";
  bool has_attention_bias = true, has_mlp_bias = false;
  DecoderWindows windows = DecoderWindows::none;
  /// The default of "sliding_window"; 0: none.
  std::int64_t window = 0;
  /// "sliding_window" counts only with "use_sliding_window".
  bool asks_for_window = false;
  /// By default, every layer has a window but each one of so many; 0: none has.
  std::int64_t pattern = 0;
  /// Layers with a window have frequencies of their own.
  bool two_ropes = false;
  bool has_partial_rope = false;
  /// Gemma's: query_pre_attn_scalar.
  bool has_query_scalar = false;
  double attention_softcap = 0, logits_softcap = 0;
};

/// The form of a family. Throws UsageError for an unknown one.
const DecoderForm& decoder_form_of(const std::string& model_type);

inline bool is_family(const DecoderConfig& config, const char* model_type) {
  return config.model_type == model_type;
}

/// The names of layers in "layer_types".
inline constexpr const char* kFullAttention = "full_attention";
inline constexpr const char* kSlidingAttention = "sliding_attention";

}  // namespace lockstep::models
