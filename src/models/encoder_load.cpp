#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/models/encoder.hpp"
#include "lockstep/parallel/sharded_init.hpp"
#include "models/class_labels.hpp"
#include "models/encoder_form.hpp"
#include "models/load_weights.hpp"
#include "train/model_content.hpp"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;

PretrainedNames names_of_encoder(const EncoderForm& form) {
  const std::string prefix = std::string(form.prefix) + ".", list = std::string(form.names.list) + ".";
  const std::string width = form.fields.hidden_size, inner = form.fields.intermediate_size;
  const std::string embedded = form.embedding_size > 0 ? "embedding_size" : width;
  const auto in_layer = [](const char* part, const char* end) { return std::string(".") + part + end; };
  PretrainedNames names{
      .base_prefix = prefix,
      .new_heads = {"pooler.", prefix + "pooler."},
      .other_heads = {"pooler.", prefix + "pooler."},
      .constants = {"embeddings.position_ids", "embeddings.token_type_ids"},
      .sizes = {{"embeddings.", "word_embeddings.weight", {"vocab_size", embedded}},
                {"embeddings.", "tok_embeddings.weight", {"vocab_size", embedded}},
                {"embeddings.", "position_embeddings.weight", {"max_position_embeddings", embedded}},
                {"embeddings.", "token_type_embeddings.weight", {"type_vocab_size", embedded}},
                {"embeddings.", "", {embedded}},
                {"embeddings_project.", "", {width, embedded}},
                {list, in_layer(form.names.inner, ".weight"), {inner, width}},
                {list, in_layer(form.names.inner, ".bias"), {inner}},
                {list, in_layer(form.names.attended, ".weight"), {width, width}},
                {list, in_layer(form.names.outer, ".weight"), {width, inner}},
                {std::string(form.classifier.output) + ".", "", {"id2label", width}},
                {"", "", {width, width}}},
      .layers = {{list, form.fields.num_hidden_layers}}};
  for (const char* head : form.heads_of_tasks)
    if (head != nullptr) names.other_heads.emplace_back(head);
  // Classifiers and the head for masked words begin with the same layer.
  if (form.is_modern) names.new_heads.emplace_back("head.");
  return names;
}

template <class Model>
Model load_classifier(const fs::path& folder, const std::vector<std::string>& head, std::int64_t num_labels,
                      PretrainedReport* report, bool new_classifier) {
  EncoderConfig config = EncoderConfig::from_file(folder);
  const bool is_new = set_new_classes(config, {.num_labels = num_labels, .new_classifier = new_classifier});
  Model model(config);
  load_weights_with_head(*model, folder, names_of_encoder(encoder_form_of(config.model_type)), head, is_new,
                         report);
  return model;
}

/// A file may have the weights of the head's last layer as well. If they are others, the configuration is
/// wrong.
void check_tied_words(const EncoderForMaskedLM& model, const fs::path& folder,
                      const std::vector<std::string>& unused) {
  const std::string name =
      std::string(encoder_form_of(model->config().model_type).masked.decoder) + ".weight";
  if (std::find(unused.begin(), unused.end(), name) == unused.end()) return;
  const auto file = model_file_of(folder);
  const at::Tensor weight = open_model_file(file).get_tensor(name), words = model->head().weight;
  if (weight.sizes() == words.sizes() && at::equal(weight.to(words.scalar_type()), words.detach().cpu()))
    return;
  throw DataError(
      fmt::format("{}: '{}' is not the embedding, with which 'tie_word_embeddings' of {} says that it "
                  "shares its values: expected false there",
                  file.string(), name, kConfigFileName));
}

/// Of a last layer with weights of its own, transformers 4 wrote the bias beside it alone.
void take_old_bias(const EncoderForMaskedLM& model, std::vector<std::string>& initialized) {
  const auto& head = encoder_form_of(model->config().model_type).masked;
  const auto is_new = [&](const std::string& name) {
    return std::find(initialized.begin(), initialized.end(), name) != initialized.end();
  };
  const std::string weight = std::string(head.decoder) + ".weight",
                    bias = std::string(head.decoder) + ".bias";
  if (!model->unused_bias().defined() || !is_new(bias) || is_new(weight) || is_new(head.bias)) return;
  const at::NoGradGuard no_grad;
  parallel::set_initial_values(model->head().bias,
                               [&](const at::Tensor& values) { values.copy_(model->unused_bias()); });
  std::erase(initialized, bias);
}

}  // namespace

EncoderModel load_encoder(const fs::path& folder, bool add_pooling_layer, PretrainedReport* report) {
  EncoderModel model(EncoderConfig::from_file(folder), add_pooling_layer);
  load_weights(*model, folder, names_of_encoder(encoder_form_of(model->config().model_type)), report);
  return model;
}

EncoderForSequenceClassification load_encoder_classifier(const fs::path& folder, std::int64_t num_labels,
                                                         PretrainedReport* report, bool new_classifier) {
  return load_classifier<EncoderForSequenceClassification>(folder, {"pre_classifier.", "classifier."},
                                                           num_labels, report, new_classifier);
}

EncoderForTokenClassification load_encoder_for_tokens(const fs::path& folder, std::int64_t num_labels,
                                                      PretrainedReport* report, bool new_classifier) {
  return load_classifier<EncoderForTokenClassification>(folder, {"classifier."}, num_labels, report,
                                                        new_classifier);
}

EncoderForMaskedLM load_encoder_for_masked_words(const fs::path& folder, PretrainedReport* report) {
  const EncoderConfig config = EncoderConfig::from_file(folder);
  EncoderForMaskedLM model(config);
  const auto& head = encoder_form_of(config.model_type).masked;
  PretrainedReport found;
  load_weights_with_head(*model, folder, names_of_encoder(encoder_form_of(config.model_type)),
                         {std::string(head.dense) + ".", std::string(head.norm) + ".", std::string(head.bias),
                          std::string(head.decoder) + "."},
                         /*is_new=*/false, &found);
  if (config.tie_word_embeddings) {
    check_tied_words(model, folder, found.unused);
  } else {
    take_old_bias(model, found.initialized);
  }
  if (report) *report = std::move(found);
  return model;
}

}  // namespace lockstep::models
