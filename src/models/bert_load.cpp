#include <algorithm>

#include "lockstep/models/bert.hpp"
#include "models/load_weights.hpp"
#include "models/weights_dtype.hpp"

namespace lockstep::models {
namespace {

PretrainedNames names_of_bert() {
  return {.base_prefix = "bert.",
          .new_heads = {"pooler.", "bert.pooler."},
          .other_heads = {"cls.", "classifier.", "qa_outputs.", "pooler.", "bert.pooler."},
          .constants = {"embeddings.position_ids"},
          .sizes = {{"embeddings.", "word_embeddings.weight", {"vocab_size", "hidden_size"}},
                    {"embeddings.", "position_embeddings.weight", {"max_position_embeddings", "hidden_size"}},
                    {"embeddings.", "token_type_embeddings.weight", {"type_vocab_size", "hidden_size"}},
                    {"encoder.", ".intermediate.dense.weight", {"intermediate_size", "hidden_size"}},
                    {"encoder.", ".intermediate.dense.bias", {"intermediate_size"}},
                    {"encoder.", ".attention.output.dense.weight", {"hidden_size", "hidden_size"}},
                    {"encoder.", ".output.dense.weight", {"hidden_size", "intermediate_size"}},
                    {"classifier.", "", {"id2label", "hidden_size"}},
                    {"", "", {"hidden_size", "hidden_size"}}},
          .layers = {{"encoder.layer.", "num_hidden_layers"}}};
}

}  // namespace

BertModel load_bert(const std::filesystem::path& folder, bool add_pooling_layer, PretrainedReport* report) {
  BertModel model(BertConfig::from_file(folder), add_pooling_layer);
  load_weights(*model, folder, names_of_bert(), report);
  return model;
}

BertForSequenceClassification load_bert_classifier(const std::filesystem::path& folder,
                                                   std::int64_t num_labels, PretrainedReport* report,
                                                   bool new_classifier) {
  BertConfig config = BertConfig::from_file(folder);
  const bool new_head = new_classifier || (num_labels != 0 && num_labels != config.num_labels);
  if (new_head) {
    config.id2label.clear();
    config.problem_type.clear();
  }
  if (num_labels != 0) config.num_labels = num_labels;
  BertForSequenceClassification model(config);
  WeightsDtype::apply(*model);
  auto names = names_of_bert();
  names.new_heads.push_back("classifier.");
  auto tensors = parallel::named_state_of(*model);
  // A classifier with other classes is a different head, even with the same name.
  const auto is_head = [](const NamedTensor& entry) { return entry.name.starts_with("classifier."); };
  if (new_head) tensors.erase(std::remove_if(tensors.begin(), tensors.end(), is_head), tensors.end());
  auto found = load_pretrained(folder, tensors, names);
  if (new_head) found.initialized.insert(found.initialized.end(), {"classifier.weight", "classifier.bias"});
  model->set_renames(found.renames);
  if (report) *report = std::move(found);
  return model;
}

}  // namespace lockstep::models
