#include "lockstep/models/bert.hpp"

#include "models/config_file.hpp"

namespace lockstep::models {

BertModel load_bert(const std::filesystem::path& folder, bool add_pooling_layer, PretrainedReport* report) {
  ConfigFile(folder).require_type("bert");
  return load_encoder(folder, add_pooling_layer, report);
}

BertForSequenceClassification load_bert_classifier(const std::filesystem::path& folder,
                                                   std::int64_t num_labels, PretrainedReport* report,
                                                   bool new_classifier) {
  ConfigFile(folder).require_type("bert");
  return load_encoder_classifier(folder, num_labels, report, new_classifier);
}

}  // namespace lockstep::models
