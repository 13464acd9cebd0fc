#include <algorithm>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/models/bert.hpp"
#include "module_state.hpp"

namespace lockstep::models {
namespace {

PretrainedNames names_of_bert() {
  return {.base_prefix = "bert.",
          .new_heads = {"pooler.", "bert.pooler."},
          .other_heads = {"cls.", "classifier.", "qa_outputs.", "pooler.", "bert.pooler."},
          .constants = {"embeddings.position_ids"}};
}

}  // namespace

BertModel load_bert(const std::filesystem::path& folder, bool add_pooling_layer) {
  BertModel model(BertConfig::from_file(folder), add_pooling_layer);
  load_pretrained(folder, state_of(*model), names_of_bert());
  return model;
}

BertForSequenceClassification load_bert_classifier(const std::filesystem::path& folder,
                                                   std::int64_t num_labels, PretrainedReport* report,
                                                   bool new_classifier) {
  BertConfig config = BertConfig::from_file(folder);
  const bool new_head = new_classifier || (num_labels != 0 && num_labels != config.num_labels);
  if (new_head) config.id2label.clear();
  if (num_labels != 0) config.num_labels = num_labels;
  BertForSequenceClassification model(config);
  auto names = names_of_bert();
  names.new_heads.push_back("classifier.");
  auto tensors = state_of(*model);
  // A classifier of other classes is another head, whatever its name.
  const auto is_head = [](const NamedTensor& entry) { return entry.name.starts_with("classifier."); };
  if (new_head) tensors.erase(std::remove_if(tensors.begin(), tensors.end(), is_head), tensors.end());
  auto found = load_pretrained(folder, tensors, names);
  if (new_head) found.initialized.insert(found.initialized.end(), {"classifier.weight", "classifier.bias"});
  if (report) *report = std::move(found);
  return model;
}

void save_pretrained(BertModel& model, const std::filesystem::path& folder) {
  save_pretrained(folder, state_of(*model), model->config().to_json("BertModel"));
}

void save_pretrained(BertForSequenceClassification& model, const std::filesystem::path& folder) {
  save_pretrained(folder, state_of(*model), model->config().to_json("BertForSequenceClassification"));
}

}  // namespace lockstep::models
