#include "support/tiny_models.hpp"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/safetensors_header.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using Shape = std::vector<std::int64_t>;
using safetensors::Entry;
constexpr std::int64_t kWidth = 32;
constexpr std::int64_t kPositions = 32;
constexpr int kLayers = 2;

std::int64_t elements_of(const Shape& shape) {
  std::int64_t count = 1;
  for (const auto size : shape) count *= size;
  return count;
}

int seed_of(const std::string& name) {
  int sum = 0;
  for (std::size_t i = 0; i < name.size(); ++i)
    sum += (static_cast<int>(i) + 1) * static_cast<unsigned char>(name[i]);
  return sum % 997;
}

/// fill() of make_models.py.
std::string bytes_of(const Entry& entry) {
  const auto count = elements_of(entry.shape);
  const bool matrix = entry.shape.size() > 1;
  const double size =
      matrix ? std::sqrt(2.0 * static_cast<double>(entry.shape[0]) / static_cast<double>(count)) : 0.1;
  const double base = !matrix && entry.name.ends_with("weight") ? 1 : 0;
  std::string bytes;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto place = static_cast<double>(i);
    const auto value = static_cast<float>(
        std::sin(place * place * 0.0310585 + place * 0.7 + seed_of(entry.name)) * size + base);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}

/// Tensors as they come.
class Weights {
 public:
  void add(const std::string& name, Shape shape) {
    header_.entries.push_back({.name = name, .dtype = "F32", .shape = std::move(shape)});
  }
  void add_pair(const std::string& name, const Shape& weight, std::int64_t bias) {
    add(name + ".weight", weight);
    add(name + ".bias", {bias});
  }
  void write(const fs::path& folder, const nlohmann::json& config) {
    write_as(folder, "model.safetensors", "config.json", config);
  }
  void write_adapter(const fs::path& folder, const nlohmann::json& config) {
    write_as(folder, "adapter_model.safetensors", "adapter_config.json", config);
  }

 private:
  void write_as(const fs::path& folder, const char* weights, const char* settings,
                const nlohmann::json& config) {
    fs::create_directories(folder);
    std::string bytes = safetensors::make_header(header_);
    for (const auto& entry : header_.entries) bytes += bytes_of(entry);
    write_bytes(folder / weights, bytes);
    write_bytes(folder / settings, config.dump());
  }

  safetensors::Header header_;
};

void add_gpt2_layer(Weights& weights, const std::string& layer) {
  weights.add_pair(layer + ".ln_1", {kWidth}, kWidth);
  weights.add_pair(layer + ".attn.c_attn", {kWidth, 3 * kWidth}, 3 * kWidth);
  weights.add_pair(layer + ".attn.c_proj", {kWidth, kWidth}, kWidth);
  weights.add_pair(layer + ".ln_2", {kWidth}, kWidth);
  weights.add_pair(layer + ".mlp.c_fc", {kWidth, 4 * kWidth}, 4 * kWidth);
  weights.add_pair(layer + ".mlp.c_proj", {4 * kWidth, kWidth}, kWidth);
}

void add_llama_layer(Weights& weights, const std::string& layer) {
  weights.add(layer + ".self_attn.q_proj.weight", {kWidth, kWidth});
  weights.add(layer + ".self_attn.k_proj.weight", {kWidth / 2, kWidth});
  weights.add(layer + ".self_attn.v_proj.weight", {kWidth / 2, kWidth});
  weights.add(layer + ".self_attn.o_proj.weight", {kWidth, kWidth});
  weights.add(layer + ".mlp.gate_proj.weight", {2 * kWidth, kWidth});
  weights.add(layer + ".mlp.up_proj.weight", {2 * kWidth, kWidth});
  weights.add(layer + ".mlp.down_proj.weight", {kWidth, 2 * kWidth});
  weights.add(layer + ".input_layernorm.weight", {kWidth});
  weights.add(layer + ".post_attention_layernorm.weight", {kWidth});
}

void add_bert_layer(Weights& weights, const std::string& layer) {
  for (const char* part : {"query", "key", "value"})
    weights.add_pair(layer + ".attention.self." + part, {kWidth, kWidth}, kWidth);
  weights.add_pair(layer + ".attention.output.dense", {kWidth, kWidth}, kWidth);
  weights.add_pair(layer + ".attention.output.LayerNorm", {kWidth}, kWidth);
  weights.add_pair(layer + ".intermediate.dense", {2 * kWidth, kWidth}, 2 * kWidth);
  weights.add_pair(layer + ".output.dense", {kWidth, 2 * kWidth}, kWidth);
  weights.add_pair(layer + ".output.LayerNorm", {kWidth}, kWidth);
}

void add_vit_layer(Weights& weights, const std::string& layer) {
  for (const char* part : {"query", "key", "value"})
    weights.add_pair(layer + ".attention.attention." + part, {kWidth, kWidth}, kWidth);
  weights.add_pair(layer + ".attention.output.dense", {kWidth, kWidth}, kWidth);
  weights.add_pair(layer + ".intermediate.dense", {2 * kWidth, kWidth}, 2 * kWidth);
  weights.add_pair(layer + ".output.dense", {kWidth, 2 * kWidth}, kWidth);
  weights.add_pair(layer + ".layernorm_before", {kWidth}, kWidth);
  weights.add_pair(layer + ".layernorm_after", {kWidth}, kWidth);
}

void add_attention(Weights& weights, const std::string& attention) {
  for (const char* part : {"q_proj", "k_proj", "v_proj", "out_proj"})
    weights.add_pair(attention + "." + part, {kWidth, kWidth}, kWidth);
  weights.add_pair(attention + "_layer_norm", {kWidth}, kWidth);
}

void add_bart_side(Weights& weights, const std::string& side) {
  weights.add(side + ".embed_positions.weight", {kPositions + 2, kWidth});
  weights.add_pair(side + ".layernorm_embedding", {kWidth}, kWidth);
  for (int i = 0; i < kLayers; ++i) {
    const std::string layer = side + ".layers." + std::to_string(i);
    add_attention(weights, layer + ".self_attn");
    if (side.ends_with("decoder")) add_attention(weights, layer + ".encoder_attn");
    weights.add_pair(layer + ".fc1", {4 * kWidth, kWidth}, 4 * kWidth);
    weights.add_pair(layer + ".fc2", {kWidth, 4 * kWidth}, kWidth);
    weights.add_pair(layer + ".final_layer_norm", {kWidth}, kWidth);
  }
}

}  // namespace

void write_tiny_gpt2(const fs::path& folder) {
  constexpr int kTokens = 403;
  Weights weights;
  weights.add("transformer.wte.weight", {kTokens, kWidth});
  weights.add("transformer.wpe.weight", {kPositions, kWidth});
  for (int i = 0; i < kLayers; ++i) add_gpt2_layer(weights, "transformer.h." + std::to_string(i));
  weights.add_pair("transformer.ln_f", {kWidth}, kWidth);
  weights.write(folder, {{"model_type", "gpt2"},
                         {"architectures", {"GPT2LMHeadModel"}},
                         {"vocab_size", kTokens},
                         {"n_positions", kPositions},
                         {"n_embd", kWidth},
                         {"n_layer", kLayers},
                         {"n_head", 2},
                         {"resid_pdrop", 0.0},
                         {"embd_pdrop", 0.0},
                         {"attn_pdrop", 0.0},
                         {"bos_token_id", kTokens - 1},
                         {"eos_token_id", kTokens - 1}});
}

void write_tiny_llama(const fs::path& folder) {
  constexpr int kTokens = 403;
  Weights weights;
  weights.add("model.embed_tokens.weight", {kTokens, kWidth});
  for (int i = 0; i < kLayers; ++i) add_llama_layer(weights, "model.layers." + std::to_string(i));
  weights.add("model.norm.weight", {kWidth});
  weights.add("lm_head.weight", {kTokens, kWidth});
  weights.write(folder, {{"model_type", "llama"},
                         {"architectures", {"LlamaForCausalLM"}},
                         {"vocab_size", kTokens},
                         {"max_position_embeddings", kPositions},
                         {"hidden_size", kWidth},
                         {"intermediate_size", 2 * kWidth},
                         {"num_hidden_layers", kLayers},
                         {"num_attention_heads", 4},
                         {"num_key_value_heads", 2},
                         {"bos_token_id", nullptr},
                         {"eos_token_id", nullptr}});
}

void write_tiny_bert(const fs::path& folder, int vocab_size, int classes, bool has_pooler) {
  Weights weights;
  weights.add("bert.embeddings.word_embeddings.weight", {vocab_size, kWidth});
  weights.add("bert.embeddings.position_embeddings.weight", {kPositions, kWidth});
  weights.add("bert.embeddings.token_type_embeddings.weight", {2, kWidth});
  weights.add_pair("bert.embeddings.LayerNorm", {kWidth}, kWidth);
  for (int i = 0; i < kLayers; ++i) add_bert_layer(weights, "bert.encoder.layer." + std::to_string(i));
  if (has_pooler) weights.add_pair("bert.pooler.dense", {kWidth, kWidth}, kWidth);
  nlohmann::json config{{"model_type", "bert"},
                        {"architectures", {"BertModel"}},
                        {"vocab_size", vocab_size},
                        {"hidden_size", kWidth},
                        {"num_hidden_layers", kLayers},
                        {"num_attention_heads", 2},
                        {"intermediate_size", 2 * kWidth},
                        {"max_position_embeddings", kPositions},
                        {"hidden_dropout_prob", 0.0},
                        {"attention_probs_dropout_prob", 0.0}};
  if (classes > 0) {
    weights.add_pair("classifier", {classes, kWidth}, classes);
    config["architectures"] = nlohmann::json::array({"BertForSequenceClassification"});
    config["num_labels"] = classes;
  }
  weights.write(folder, config);
}

void write_tiny_bert_adapter(const fs::path& folder, int classes) {
  constexpr int kRank = 2;
  const std::string prefix = "base_model.model.";
  Weights weights;
  for (int i = 0; i < kLayers; ++i) {
    const std::string query =
        prefix + "bert.encoder.layer." + std::to_string(i) + ".attention.self.query.lora_";
    weights.add(query + "A.weight", {kRank, kWidth});
    weights.add(query + "B.weight", {kWidth, kRank});
  }
  weights.add_pair(prefix + "classifier", {classes, kWidth}, classes);
  weights.write_adapter(folder, {{"peft_type", "LORA"},
                                 {"task_type", "SEQ_CLS"},
                                 {"r", kRank},
                                 {"lora_alpha", 4},
                                 {"target_modules", {"query"}},
                                 {"modules_to_save", {"classifier", "score"}}});
}

void write_tiny_bart(const fs::path& folder) {
  constexpr int kTokens = 403;
  Weights weights;
  weights.add("model.shared.weight", {kTokens, kWidth});
  weights.add("final_logits_bias", {1, kTokens});
  for (const char* side : {"model.encoder", "model.decoder"}) add_bart_side(weights, side);
  nlohmann::json config{{"model_type", "bart"},  {"architectures", {"BartForConditionalGeneration"}},
                        {"vocab_size", kTokens}, {"max_position_embeddings", kPositions},
                        {"d_model", kWidth},     {"dropout", 0.0},
                        {"pad_token_id", 1},     {"bos_token_id", 0},
                        {"eos_token_id", 2},     {"decoder_start_token_id", 2}};
  for (const std::string side : {"encoder", "decoder"}) {
    config[side + "_layers"] = kLayers;
    config[side + "_attention_heads"] = 2;
    config[side + "_ffn_dim"] = 4 * kWidth;
  }
  weights.write(folder, config);
}

void write_tiny_vit(const fs::path& folder, int classes) {
  constexpr int kSide = 16;
  constexpr int kPatch = 8;
  Weights weights;
  weights.add("vit.embeddings.cls_token", {1, 1, kWidth});
  weights.add("vit.embeddings.position_embeddings", {1, 1 + (kSide / kPatch) * (kSide / kPatch), kWidth});
  weights.add_pair("vit.embeddings.patch_embeddings.projection", {kWidth, 3, kPatch, kPatch}, kWidth);
  for (int i = 0; i < kLayers; ++i) add_vit_layer(weights, "vit.encoder.layer." + std::to_string(i));
  weights.add_pair("vit.layernorm", {kWidth}, kWidth);
  weights.add_pair("classifier", {classes, kWidth}, classes);
  nlohmann::json config{{"model_type", "vit"},      {"architectures", {"ViTForImageClassification"}},
                        {"hidden_size", kWidth},    {"num_hidden_layers", kLayers},
                        {"num_attention_heads", 2}, {"intermediate_size", 2 * kWidth},
                        {"image_size", kSide},      {"patch_size", kPatch},
                        {"kept", "as it is"}};
  for (int label = 0; label < classes; ++label) {
    config["id2label"][std::to_string(label)] = "c" + std::to_string(label);
    config["label2id"]["c" + std::to_string(label)] = label;
  }
  weights.write(folder, config);
  const nlohmann::json processor{{"image_processor_type", "ViTImageProcessor"},
                                 {"size", {{"height", kSide}, {"width", kSide}}},
                                 {"resample", 2}};
  write_bytes(folder / "preprocessor_config.json", processor.dump(2));
}

void copy_generic_tokenizer(const fs::path& tokenizer_json, const fs::path& folder) {
  fs::copy_file(tokenizer_json, folder / "tokenizer.json");
  write_bytes(folder / "tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
}

}  // namespace lockstep::testing
