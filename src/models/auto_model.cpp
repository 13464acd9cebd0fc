#include "lockstep/models/auto_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/models/bart.hpp"
#include "lockstep/models/convnext.hpp"
#include "lockstep/models/decoder.hpp"
#include "lockstep/models/encoder.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/models/opt.hpp"
#include "lockstep/models/vision_transformer.hpp"
#include "models/config_file.hpp"
#include "models/nf4_load.hpp"
#include "models/weights_dtype.hpp"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;

// ---- What the families do, in the form of the table below

template <class Config>
ModelConfig config_in(const fs::path& folder) {
  return Config::from_file(folder).model_config();
}

template <class Holder, class Model>
Holder as(const Model& model) {
  return Holder(std::static_pointer_cast<typename Holder::Impl>(model.ptr()));
}

TextEncoder encoder(const fs::path& folder, const FromPretrainedOptions& options) {
  return as<TextEncoder>(load_encoder(folder, options.add_pooling_layer, options.report));
}

SequenceClassifier encoder_classifier(const fs::path& folder, const FromPretrainedOptions& options) {
  return as<SequenceClassifier>(
      load_encoder_classifier(folder, options.num_labels, options.report, options.new_classifier));
}

TokenClassifier encoder_for_tokens(const fs::path& folder, const FromPretrainedOptions& options) {
  return as<TokenClassifier>(
      load_encoder_for_tokens(folder, options.num_labels, options.report, options.new_classifier));
}

MaskedLM encoder_for_masked_words(const fs::path& folder, const FromPretrainedOptions& options) {
  return as<MaskedLM>(load_encoder_for_masked_words(folder, options.report));
}

MaskedLM new_masked_lm(const fs::path& folder) {
  return as<MaskedLM>(EncoderForMaskedLM(EncoderConfig::from_file(folder)));
}

CausalLM gpt2(const fs::path& folder, const FromPretrainedOptions& options) {
  return as<CausalLM>(load_gpt2(folder, options.report));
}

CausalLM new_gpt2(const fs::path& folder) {
  return as<CausalLM>(Gpt2LMHeadModel(Gpt2Config::from_file(folder)));
}

CausalLM gpt2_of(const ModelConfig& config, const ModelSizes& sizes) {
  Gpt2Config own{.vocab_size = config.vocab_size,
                 .n_positions = config.max_position_embeddings,
                 .n_embd = sizes.hidden_size,
                 .n_layer = sizes.num_hidden_layers,
                 .n_head = sizes.num_attention_heads,
                 .eos_token_id = config.eos_token_id,
                 .pad_token_id = config.pad_token_id};
  if (config.bos_token_id) own.bos_token_id = *config.bos_token_id;
  return as<CausalLM>(Gpt2LMHeadModel(own));
}

CausalLM opt(const fs::path& folder, const FromPretrainedOptions& options) {
  return as<CausalLM>(load_opt(folder, options.report));
}

CausalLM new_opt(const fs::path& folder) {
  return as<CausalLM>(OptForCausalLM(OptConfig::from_file(folder)));
}

CausalLM opt_of(const ModelConfig& config, const ModelSizes& sizes) {
  OptConfig own{.vocab_size = config.vocab_size,
                .hidden_size = sizes.hidden_size,
                .num_hidden_layers = sizes.num_hidden_layers,
                .ffn_dim = 4 * sizes.hidden_size,
                .max_position_embeddings = config.max_position_embeddings,
                .num_attention_heads = sizes.num_attention_heads,
                .eos_token_id = config.eos_token_id};
  if (config.pad_token_id) own.pad_token_id = *config.pad_token_id;
  if (config.bos_token_id) own.bos_token_id = *config.bos_token_id;
  return as<CausalLM>(OptForCausalLM(own));
}

CausalLM decoder(const fs::path& folder, const FromPretrainedOptions& options) {
  return as<CausalLM>(load_decoder(folder, options.report));
}

CausalLM new_decoder(const fs::path& folder) {
  return as<CausalLM>(DecoderForCausalLM(DecoderConfig::from_file(folder)));
}

CausalLM decoder_of(const ModelConfig& config, const ModelSizes& sizes) {
  return as<CausalLM>(DecoderForCausalLM(DecoderConfig::of(config, sizes)));
}

Seq2SeqLM bart(const fs::path& folder, const FromPretrainedOptions& options) {
  return as<Seq2SeqLM>(load_bart(folder, options.report));
}

Seq2SeqLM new_bart(const fs::path& folder) {
  return as<Seq2SeqLM>(BartForConditionalGeneration(BartConfig::from_file(folder)));
}

Seq2SeqLM bart_of(const ModelConfig& config, const ModelSizes& sizes) {
  BartConfig own = BartConfig::of(config.model_type);
  own.vocab_size = own.decoder_vocab_size = config.vocab_size;
  own.max_position_embeddings = config.max_position_embeddings;
  own.d_model = sizes.hidden_size;
  own.encoder_layers = own.decoder_layers = sizes.num_hidden_layers;
  own.encoder_attention_heads = own.decoder_attention_heads = sizes.num_attention_heads;
  own.encoder_ffn_dim = own.decoder_ffn_dim = 4 * sizes.hidden_size;
  if (config.pad_token_id) own.pad_token_id = *config.pad_token_id;
  own.bos_token_id = config.bos_token_id;
  own.eos_token_id = config.eos_token_id;
  own.decoder_start_token_id = config.decoder_start_token_id;
  own.forced_bos_token_id = config.forced_bos_token_id;
  own.forced_eos_token_id = config.forced_eos_token_id;
  return as<Seq2SeqLM>(BartForConditionalGeneration(own));
}

ImageClassifier vision_transformer(const fs::path& folder, const FromPretrainedOptions& options) {
  return as<ImageClassifier>(
      load_vision_transformer(folder, options.num_labels, options.report, options.new_classifier));
}

ImageClassifier new_vision_transformer(const fs::path& folder) {
  return as<ImageClassifier>(
      VisionTransformerForImageClassification(VisionTransformerConfig::from_file(folder)));
}

ImageClassifier convnext(const fs::path& folder, const FromPretrainedOptions& options) {
  return as<ImageClassifier>(
      load_convnext(folder, options.num_labels, options.report, options.new_classifier));
}

ImageClassifier new_convnext(const fs::path& folder) {
  return as<ImageClassifier>(ConvNextForImageClassification(ConvNextConfig::from_file(folder)));
}

/// A model of a folder, new for the configuration of one, and new of these sizes.
template <class Model>
struct Makers {
  Model (*load)(const fs::path&, const FromPretrainedOptions&) = nullptr;
  Model (*of_file)(const fs::path&) = nullptr;
  Model (*of_sizes)(const ModelConfig&, const ModelSizes&) = nullptr;
};

/// A family: its name in config.json, and its models; null where it has none for a task.
struct Family {
  const char* model_type;
  ModelConfig (*config)(const fs::path&);
  Makers<TextEncoder> encoder = {};
  Makers<SequenceClassifier> sequence_classifier = {};
  Makers<TokenClassifier> token_classifier = {};
  Makers<MaskedLM> masked_lm = {};
  Makers<CausalLM> causal_lm = {};
  Makers<Seq2SeqLM> seq2seq_lm = {};
  Makers<ImageClassifier> image_classifier = {};
};

constexpr Makers<Seq2SeqLM> kBart = {bart, new_bart, bart_of};

constexpr Family decoder_family(const char* model_type) {
  return {.model_type = model_type,
          .config = config_in<DecoderConfig>,
          .causal_lm = {decoder, new_decoder, decoder_of}};
}

constexpr Family vision_family(const char* model_type) {
  return {.model_type = model_type,
          .config = config_in<VisionTransformerConfig>,
          .image_classifier = {vision_transformer, new_vision_transformer}};
}

constexpr Family encoder_family(const char* model_type) {
  return {.model_type = model_type,
          .config = config_in<EncoderConfig>,
          .encoder = {encoder},
          .sequence_classifier = {encoder_classifier},
          .token_classifier = {encoder_for_tokens},
          .masked_lm = {encoder_for_masked_words, new_masked_lm}};
}

/// All families. A table rather than objects that register themselves: a linker leaves those out of a static
/// library.
constexpr Family kFamilies[] = {
    {.model_type = "bart", .config = config_in<BartConfig>, .seq2seq_lm = kBart},
    encoder_family("bert"),
    {.model_type = "convnext",
     .config = config_in<ConvNextConfig>,
     .image_classifier = {convnext, new_convnext}},
    vision_family("deit"),
    vision_family("dinov2"),
    encoder_family("distilbert"),
    encoder_family("electra"),
    decoder_family("gemma"),
    decoder_family("gemma2"),
    decoder_family("gemma3_text"),
    {.model_type = "gpt2", .config = config_in<Gpt2Config>, .causal_lm = {gpt2, new_gpt2, gpt2_of}},
    decoder_family("granite"),
    decoder_family("llama"),
    {.model_type = "m2m_100", .config = config_in<BartConfig>, .seq2seq_lm = kBart},
    {.model_type = "marian", .config = config_in<BartConfig>, .seq2seq_lm = kBart},
    {.model_type = "mbart", .config = config_in<BartConfig>, .seq2seq_lm = kBart},
    decoder_family("mistral"),
    encoder_family("modernbert"),
    decoder_family("olmo2"),
    {.model_type = "opt", .config = config_in<OptConfig>, .causal_lm = {opt, new_opt, opt_of}},
    decoder_family("phi3"),
    decoder_family("qwen2"),
    decoder_family("qwen3"),
    encoder_family("roberta"),
    decoder_family("smollm3"),
    vision_family("vit"),
    encoder_family("xlm-roberta"),
};

// ---- Looking up

const Family* find_family(const std::string& model_type) {
  const auto* found = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                   [&](const Family& family) { return family.model_type == model_type; });
  return found == std::end(kFamilies) ? nullptr : found;
}

const Family& family_of(const fs::path& folder) {
  std::vector<std::string> all;
  for (const auto& family : kFamilies) all.emplace_back(family.model_type);
  return *find_family(ConfigFile(folder).model_type(all));
}

/// A task: the families' makers of its models, and its name in messages.
template <class Model>
struct Task {
  Makers<Model> Family::*makers;
  const char* name;

  std::vector<std::string> types() const {
    std::vector<std::string> types;
    for (const auto& family : kFamilies) {
      if ((family.*makers).load != nullptr) types.emplace_back(family.model_type);
    }
    return types;
  }

  const Family& family(const fs::path& folder) const {
    const Family& found = family_of(folder);
    if ((found.*makers).load != nullptr) return found;
    throw DataError(fmt::format("{}: the field 'model_type' is \"{}\", which has no {}; these have one: '{}'",
                                (folder / kConfigFileName).string(), found.model_type, name,
                                fmt::join(types(), "', '")));
  }

  const Makers<Model>& of(const fs::path& folder) const { return family(folder).*makers; }

  const Makers<Model>& of(const std::string& model_type) const {
    const Family* found = find_family(model_type);
    if (found != nullptr && (found->*makers).load != nullptr) return found->*makers;
    throw UsageError(fmt::format("there is no {} of model_type '{}'; expected one of '{}'", name, model_type,
                                 fmt::join(types(), "', '")));
  }
};

/// How the weights of a model are quantized: those of its folder, or as the options ask for.
std::optional<Nf4Options> quantization_of(const fs::path& folder, const FromPretrainedOptions& options,
                                          bool is_decoder) {
  const ConfigFile config(folder);
  auto quantization = nf4_of_config(config);
  if (!is_decoder && quantization)
    config.fail("quantization_config", "none: only causal language models can be quantized");
  if (!is_decoder && options.quantization)
    throw UsageError("quantization: only causal language models can be quantized");
  if (!quantization) return options.quantization;
  if (options.quantization && options.quantization->compute_dtype)
    quantization->compute_dtype = options.quantization->compute_dtype;
  return quantization;
}

template <class Model>
Model load(const Task<Model>& task, const fs::path& folder, const FromPretrainedOptions& options) {
  const auto& makers = task.of(folder);
  const WeightsDtype dtype(options.dtype ? *options.dtype : dtype_of_folder(folder));
  const WeightsQuantization quantization(quantization_of(folder, options, std::is_same_v<Model, CausalLM>));
  return makers.load(folder, options);
}

constexpr Task<TextEncoder> kEncoder = {&Family::encoder, "text encoder"};
constexpr Task<SequenceClassifier> kClassifier = {&Family::sequence_classifier, "sequence classifier"};
constexpr Task<TokenClassifier> kTokenClassifier = {&Family::token_classifier, "token classifier"};
constexpr Task<MaskedLM> kMaskedLM = {&Family::masked_lm, "masked language model"};
constexpr Task<CausalLM> kCausalLM = {&Family::causal_lm, "causal language model"};
constexpr Task<ImageClassifier> kImageClassifier = {&Family::image_classifier, "image classifier"};
constexpr Task<Seq2SeqLM> kSeq2SeqLM = {&Family::seq2seq_lm, "encoder-decoder"};

}  // namespace

ModelConfig AutoConfig::from_pretrained(const fs::path& folder) { return family_of(folder).config(folder); }

std::optional<at::ScalarType> dtype_of_name(const std::string& name) {
  if (name == "auto") return std::nullopt;
  if (const auto dtype = python_dtype(name)) return dtype;
  throw UsageError(fmt::format(
      "the dtype of weights is '{}', expected float32, bfloat16, float16, float64 or auto", name));
}

TextEncoder AutoModel::from_pretrained(const fs::path& folder, const FromPretrainedOptions& options) {
  return load(kEncoder, folder, options);
}

ModelConfig AutoModel::config_of(const fs::path& folder) { return kEncoder.family(folder).config(folder); }

CausalLM AutoModelForCausalLM::from_pretrained(const fs::path& folder, const FromPretrainedOptions& options) {
  return load(kCausalLM, folder, options);
}

ModelConfig AutoModelForCausalLM::config_of(const fs::path& folder) {
  return kCausalLM.family(folder).config(folder);
}

CausalLM AutoModelForCausalLM::from_config(const fs::path& folder) {
  return kCausalLM.of(folder).of_file(folder);
}

CausalLM AutoModelForCausalLM::from_config(const ModelConfig& config, const ModelSizes& sizes) {
  return kCausalLM.of(config.model_type).of_sizes(config, sizes);
}

SequenceClassifier AutoModelForSequenceClassification::from_pretrained(const fs::path& folder,
                                                                       const FromPretrainedOptions& options) {
  return load(kClassifier, folder, options);
}

ModelConfig AutoModelForSequenceClassification::config_of(const fs::path& folder) {
  return kClassifier.family(folder).config(folder);
}

ImageClassifier AutoModelForImageClassification::from_pretrained(const fs::path& folder,
                                                                 const FromPretrainedOptions& options) {
  return load(kImageClassifier, folder, options);
}

ModelConfig AutoModelForImageClassification::config_of(const fs::path& folder) {
  return kImageClassifier.family(folder).config(folder);
}

ImageClassifier AutoModelForImageClassification::from_config(const fs::path& folder) {
  return kImageClassifier.of(folder).of_file(folder);
}

TokenClassifier AutoModelForTokenClassification::from_pretrained(const fs::path& folder,
                                                                 const FromPretrainedOptions& options) {
  return load(kTokenClassifier, folder, options);
}

ModelConfig AutoModelForTokenClassification::config_of(const fs::path& folder) {
  return kTokenClassifier.family(folder).config(folder);
}

MaskedLM AutoModelForMaskedLM::from_pretrained(const fs::path& folder, const FromPretrainedOptions& options) {
  return load(kMaskedLM, folder, options);
}

ModelConfig AutoModelForMaskedLM::config_of(const fs::path& folder) {
  return kMaskedLM.family(folder).config(folder);
}

MaskedLM AutoModelForMaskedLM::from_config(const fs::path& folder) {
  return kMaskedLM.of(folder).of_file(folder);
}

Seq2SeqLM AutoModelForSeq2SeqLM::from_pretrained(const fs::path& folder,
                                                 const FromPretrainedOptions& options) {
  return load(kSeq2SeqLM, folder, options);
}

ModelConfig AutoModelForSeq2SeqLM::config_of(const fs::path& folder) {
  return kSeq2SeqLM.family(folder).config(folder);
}

Seq2SeqLM AutoModelForSeq2SeqLM::from_config(const fs::path& folder) {
  return kSeq2SeqLM.of(folder).of_file(folder);
}

Seq2SeqLM AutoModelForSeq2SeqLM::from_config(const ModelConfig& config, const ModelSizes& sizes) {
  return kSeq2SeqLM.of(config.model_type).of_sizes(config, sizes);
}

}  // namespace lockstep::models
