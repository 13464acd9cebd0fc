#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/models/bart.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/models/convnext.hpp"
#include "lockstep/models/vision_transformer.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep::models {
namespace {

constexpr const char* kSmallBert = R"("vocab_size": 5, "hidden_size": 4, "num_hidden_layers": 1,
    "num_attention_heads": 1, "intermediate_size": 4, "attention_probs_dropout_prob": 0)";

/// Whether only the bias of the classifier is left in training.
bool drops_everything(const std::string& fields) {
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder.path() / "config.json", "{" + std::string(kSmallBert) + fields + "}");
  BertForSequenceClassification model(BertConfig::from_file(folder.path()));
  return !model(at::arange(5).unsqueeze(0)).any().item<bool>();
}

/// As in transformers, where null is the dropout of the other layers.
TEST(BertConfig, TheClassifierHasItsOwnDropout) {
  EXPECT_TRUE(drops_everything(R"(, "hidden_dropout_prob": 0, "classifier_dropout": 1)"));
  EXPECT_FALSE(drops_everything(R"(, "hidden_dropout_prob": 0, "classifier_dropout": null)"));
  EXPECT_TRUE(drops_everything(R"(, "hidden_dropout_prob": 1)"));
}

TEST(BertConfig, TheClassifiersDropoutIsSaved) {
  EXPECT_TRUE(testing::contains_all(BertConfig{}.to_json("BertModel"), {"\"classifier_dropout\": null"}));
  EXPECT_TRUE(testing::contains_all(BertConfig{.classifier_dropout = 0.25}.to_json("BertModel"),
                                    {"\"classifier_dropout\": 0.25"}));
}

/// Python chooses the loss of a classifier by it; a new classifier has none.
TEST(BertConfig, TheProblemTypeIsKept) {
  const testing::TemporaryFolder folder;
  const auto write = [&](const std::string& fields) {
    testing::write_bytes(folder.path() / "config.json", "{" + std::string(kSmallBert) + fields + "}");
  };
  write(R"(, "problem_type": "multi_label_classification")");
  BertForSequenceClassification model(BertConfig::from_file(folder.path()));
  save_pretrained(model, folder.path());
  EXPECT_EQ(load_bert_classifier(folder.path())->config().problem_type, "multi_label_classification");
  EXPECT_EQ(load_bert_classifier(folder.path(), 3)->config().problem_type, "");
  write(R"(, "problem_type": "ranking")");
  EXPECT_THROWS(BertConfig::from_file(folder.path()), DataError, "'problem_type' is \"ranking\"",
                "regression");
}

/// What the family's file has no field for, or what is refused when it is read.
TEST(Configs, WhatAFileCannotSayIsNotLostInSilence) {
  auto distil = EncoderConfig::of("distilbert");
  distil.layer_norm_eps = 1e-5;
  EXPECT_THROWS(distil.to_json("DistilBertModel"), UsageError,
                "config.json of a 'distilbert' cannot say what this model does: layer_norm_eps.");
  EXPECT_THROWS(BertConfig{.embedding_size = 128}.to_json("BertModel"), UsageError, "does: embedding_size.");
  EXPECT_THROWS(BertConfig{.problem_type = "ranking"}.to_json("BertModel"), UsageError,
                "does: problem_type.");
  EXPECT_THROWS(BartConfig{.share_encoder_decoder_embeddings = false}.to_json(), UsageError, "'bart'",
                "does: share_encoder_decoder_embeddings.");
  EXPECT_THROWS(VisionTransformerConfig{.with_teacher = true}.to_json(), UsageError, "'vit'",
                "does: with_teacher.");
  EXPECT_THROWS(ConvNextConfig{.problem_type = "ranking"}.to_json(), UsageError, "does: problem_type.");
}

/// The share of layers that are skipped in training: see Families.SkipsTheLayersThatItsPeerSkips.
TEST(BartConfig, TheSkippingOfLayersIsReadAndSaved) {
  const testing::TemporaryFolder folder;
  const auto read = [&](const std::string& fields) {
    testing::write_bytes(folder.path() / "config.json", "{\"model_type\": \"bart\", " + fields + "}");
    return BartConfig::from_file(folder.path());
  };
  const auto config = read(R"("encoder_layerdrop": 0.1, "decoder_layerdrop": 0)");
  EXPECT_EQ(config.encoder_layerdrop, 0.1);
  EXPECT_EQ(config.decoder_layerdrop, 0);
  EXPECT_TRUE(testing::contains_all(config.to_json(), {"\"encoder_layerdrop\": 0.1"}));
  EXPECT_THROWS(read(R"("encoder_layerdrop": 1.5)"), DataError,
                "'encoder_layerdrop' is 1.5, expected a number from 0");
}

TEST(Pretrained, DamagedPicklesAreNamed) {
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    const testing::TemporaryFolder folder;
    testing::write_bytes(folder.path() / "config.json", "{" + std::string(kSmallBert) + "}");
    testing::write_bytes(folder.path() / name, "");
    EXPECT_THROWS(load_bert(folder.path()), DataError, name);
  }
}

}  // namespace
}  // namespace lockstep::models
