#pragma once

#include <cstdint>
#include <filesystem>

#include "lockstep/models/encoder.hpp"

namespace lockstep::models {

// BERT is the encoder with its own defaults.

using BertConfig = EncoderConfig;
using BertModelImpl = EncoderModelImpl;
using BertModel = EncoderModel;
using BertForSequenceClassificationImpl = EncoderForSequenceClassificationImpl;
using BertForSequenceClassification = EncoderForSequenceClassification;

/// load_encoder() of a BERT. Throws DataError for other families.
BertModel load_bert(const std::filesystem::path& folder, bool add_pooling_layer = true,
                    PretrainedReport* report = nullptr);
/// load_encoder_classifier() of a BERT. Throws DataError for other families.
BertForSequenceClassification load_bert_classifier(const std::filesystem::path& folder,
                                                   std::int64_t num_labels = 0,
                                                   PretrainedReport* report = nullptr,
                                                   bool new_classifier = false);

}  // namespace lockstep::models
