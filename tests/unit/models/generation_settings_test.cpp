#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/gpt2.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep::models {
namespace {

using Json = nlohmann::ordered_json;

/// A folder of a GPT-2 of 11 tokens, whose generation_config.json a test writes.
class GenerationSettingsTest : public ::testing::Test {
 protected:
  GenerationSettingsTest() {
    Gpt2LMHeadModel model(
        Gpt2Config{.vocab_size = 11, .n_positions = 32, .n_embd = 4, .n_layer = 1, .n_head = 1});
    save_pretrained(model, folder_.path());
  }

  void write(const std::string& text) const {
    testing::write_bytes(folder_.path() / "generation_config.json", text);
  }

  GenerationConfig read(const std::string& text) const {
    write(text);
    return GenerationConfig::from_pretrained(folder_.path());
  }

  /// Expects one line that names the file, the field and what was expected, from the file alone and from
  /// generate() with the model.
  void expect_refused(const std::string& text, const std::string& field, const std::string& expected) const {
    write(text);
    const auto check = [&](const std::string& message) {
      EXPECT_TRUE(testing::contains_all(
          message, {"generation_config.json: the field '" + field + "' is ", ", expected ", expected}));
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    };
    check(testing::message_of<DataError>([&] { GenerationConfig::from_pretrained(folder_.path()); }));
    const auto model = AutoModelForCausalLM::from_pretrained(folder_.path());
    check(testing::message_of<DataError>([&] { generate(model, at::ones({1, 1}, at::kLong)); }));
  }

  testing::TemporaryFolder folder_;
};

TEST_F(GenerationSettingsTest, AreReadWhole) {
  const auto config = read(R"({"max_length": 30, "max_new_tokens": 9, "min_length": 2, "min_new_tokens": 1,
    "eos_token_id": [3, 4], "pad_token_id": 5, "decoder_start_token_id": 6, "forced_bos_token_id": 7,
    "forced_eos_token_id": 8, "do_sample": true, "temperature": 0.5, "top_k": 6, "top_p": 0.75, "min_p": 0.25,
    "num_beams": 4, "length_penalty": -2, "early_stopping": "never", "num_return_sequences": 3,
    "repetition_penalty": 1.5, "no_repeat_ngram_size": 3, "encoder_no_repeat_ngram_size": 2,
    "bad_words_ids": [[1], [2, 3]], "suppress_tokens": [9], "begin_suppress_tokens": [10],
    "renormalize_logits": true})");
  EXPECT_EQ(config.max_length, 30);
  EXPECT_EQ(config.max_new_tokens, 9);
  EXPECT_EQ(config.min_length, 2);
  EXPECT_EQ(config.min_new_tokens, 1);
  EXPECT_EQ(config.eos_token_id, (TokenIds{3, 4}));
  EXPECT_EQ(config.pad_token_id, 5);
  EXPECT_EQ(config.decoder_start_token_id, 6);
  EXPECT_EQ(config.forced_bos_token_id, 7);
  EXPECT_EQ(config.forced_eos_token_id, 8);
  EXPECT_EQ(config.do_sample, true);
  EXPECT_EQ(config.temperature, 0.5);
  EXPECT_EQ(config.top_k, 6);
  EXPECT_EQ(config.top_p, 0.75);
  EXPECT_EQ(config.min_p, 0.25);
  EXPECT_EQ(config.num_beams, 4);
  EXPECT_EQ(config.length_penalty, -2);
  EXPECT_EQ(config.early_stopping, EarlyStopping::never());
  EXPECT_EQ(config.num_return_sequences, 3);
  EXPECT_EQ(config.repetition_penalty, 1.5);
  EXPECT_EQ(config.no_repeat_ngram_size, 3);
  EXPECT_EQ(config.encoder_no_repeat_ngram_size, 2);
  EXPECT_EQ(config.bad_words_ids, (std::vector<std::vector<std::int64_t>>{{1}, {2, 3}}));
  EXPECT_EQ(config.suppress_tokens, std::vector<std::int64_t>{9});
  EXPECT_EQ(config.begin_suppress_tokens, std::vector<std::int64_t>{10});
  EXPECT_EQ(config.renormalize_logits, true);
}

/// What is not in the file, or null there, is open.
TEST_F(GenerationSettingsTest, OtherFieldsStayOpen) {
  const auto config = read(R"({"num_beams": null, "top_k": null, "transformers_version": "5.24.0",
    "_from_model_config": true, "use_cache": true, "output_scores": false, "cache_implementation": "static",
    "pad_token_id": -1, "typical_p": 1.0, "num_beam_groups": 1, "diversity_penalty": 0.0, "penalty_alpha": null,
    "guidance_scale": 1, "encoder_repetition_penalty": 1.0, "remove_invalid_values": false, "a_note": "of others"})");
  EXPECT_EQ(config.num_beams, std::nullopt);
  EXPECT_EQ(config.top_k, std::nullopt);
  EXPECT_EQ(config.pad_token_id, std::nullopt);
  EXPECT_EQ(config.early_stopping, std::nullopt);
  EXPECT_TRUE(config.eos_token_id.empty());
}

TEST_F(GenerationSettingsTest, WhatIsNotImplementedIsRefusedByName) {
  for (const auto& [field, value] : std::initializer_list<std::pair<std::string, std::string>>{
           {"penalty_alpha", "0.6"},
           {"typical_p", "0.9"},
           {"top_h", "0.4"},
           {"epsilon_cutoff", "0.0003"},
           {"eta_cutoff", "0.002"},
           {"num_beam_groups", "2"},
           {"diversity_penalty", "0.5"},
           {"encoder_repetition_penalty", "1.2"},
           {"prompt_lookup_num_tokens", "3"},
           {"num_assistant_tokens", "7"},
           {"assistant_early_exit", "2"},
           {"is_assistant", "true"},
           {"watermarking_config", R"({"bias": 2.5})"},
           {"guidance_scale", "1.5"},
           {"constraints", "[1]"},
           {"force_words_ids", "[[3]]"},
           {"sequence_bias", "[[[3], 1.5]]"},
           {"exponential_decay_length_penalty", "[5, 1.1]"},
           {"remove_invalid_values", "true"},
           {"token_healing", "true"},
           {"dola_layers", R"("high")"},
           {"stop_strings", R"(["."])"},
           {"max_time", "3.5"},
           {"use_mtp", "true"}})
    expect_refused("{\"" + field + "\": " + value + "}", field, "generate() does not implement this setting");
}

TEST_F(GenerationSettingsTest, WrongValuesAreNamedWithTheirFile) {
  expect_refused(R"({"min_length": 9, "max_length": 8})", "min_length",
                 "at most 'max_length', which is 8 in ");
  expect_refused(R"({"min_new_tokens": 9, "max_new_tokens": 8})", "min_new_tokens",
                 "at most 'max_new_tokens', which is 8 in ");
  expect_refused(R"({"num_beams": 2, "num_return_sequences": 3})", "num_return_sequences",
                 "at most 'num_beams', which is 2 in ");
  expect_refused(R"({"num_return_sequences": 2})", "num_return_sequences", "1: ");
  expect_refused(R"({"do_sample": true, "temperature": 0})", "temperature", "more than 0");
  expect_refused(R"({"do_sample": true, "temperature": -1.5})", "temperature", "more than 0");
  expect_refused(R"({"top_p": 0})", "top_p", "more than 0 and at most 1");
  expect_refused(R"({"top_p": 1.5})", "top_p", "more than 0 and at most 1");
  expect_refused(R"({"min_p": 1.5})", "min_p", "0 to 1");
  expect_refused(R"({"top_k": -1})", "top_k", "at least 0");
  expect_refused(R"({"repetition_penalty": 0})", "repetition_penalty", "more than 0");
  expect_refused(R"({"repetition_penalty": -2.0})", "repetition_penalty", "more than 0");
  expect_refused(R"({"bad_words_ids": [[1], [2, 11]]})", "bad_words_ids", "the model's 11 tokens");
  expect_refused(R"({"bad_words_ids": [[]]})", "bad_words_ids", "none of them empty");
  expect_refused(R"({"bad_words_ids": []})", "bad_words_ids", "none of them empty");
  expect_refused(R"({"bad_words_ids": [3]})", "bad_words_ids", "a list of lists of tokens");
  expect_refused(R"({"num_beams": 0})", "num_beams", "at least 1");
  expect_refused(R"({"num_beams": "four"})", "num_beams", "an integer");
  expect_refused(R"({"num_beams": 2.5})", "num_beams", "an integer");
  expect_refused(R"({"num_beams": 123456789012345678901})", "num_beams", "an integer");
  expect_refused(R"({"max_new_tokens": 0})", "max_new_tokens", "at least 1");
  expect_refused(R"({"early_stopping": "sometimes"})", "early_stopping", "\"never\"");
  expect_refused(R"({"do_sample": 1})", "do_sample", "true or false");
  expect_refused(R"({"length_penalty": "2"})", "length_penalty", "a number");
  expect_refused(R"({"no_repeat_ngram_size": -3})", "no_repeat_ngram_size", "at least 0");
  expect_refused(R"({"suppress_tokens": 3})", "suppress_tokens", "a list of tokens");
}

TEST_F(GenerationSettingsTest, FilesThatAreNoSettingsAreNamed) {
  write("[1, 2]");
  EXPECT_THROWS(GenerationConfig::from_pretrained(folder_.path()), DataError, "generation_config.json",
                "object");
  write("{\"num_beams\": ");
  EXPECT_THROWS(GenerationConfig::from_pretrained(folder_.path()), DataError, "generation_config.json");
}

TEST_F(GenerationSettingsTest, OptionsOutweighTheFile) {
  write(R"({"num_beams": 4, "min_length": 9, "max_length": 12, "eos_token_id": 3})");
  const auto merged = generation_settings(folder_.path(), {.max_new_tokens = 5, .num_beams = 1});
  EXPECT_EQ(merged.num_beams, 1);
  EXPECT_EQ(merged.max_new_tokens, 5);
  EXPECT_EQ(merged.min_length, 9);
  const auto model = AutoModelForCausalLM::from_pretrained(folder_.path());
  model.ptr()->eval();
  const at::Tensor prompt = at::full({1, 2}, 7, at::kLong);
  // The folder's least length gives way to the most that the option says.
  EXPECT_EQ(generate(model, prompt, {.max_new_tokens = 5, .eos_token_id = 100}).size(1), 7);
  EXPECT_EQ(generate(model, prompt, {.eos_token_id = 100}).size(1), 12);
  write(R"({"num_return_sequences": 3, "num_beams": 4})");
  EXPECT_THROWS(generation_settings(folder_.path(), {.num_beams = 2}), DataError,
                "generation_config.json: the field 'num_return_sequences' is 3", "'num_beams', which is 2");
}

TEST_F(GenerationSettingsTest, OptionsAreCheckedAsWell) {
  const auto refuse = [](const GenerationConfig& options, std::initializer_list<std::string_view> parts) {
    const TokenModel model{.next =
                               [](const at::Tensor& tokens) {
                                 return at::ones({tokens.size(0), 6});
                               },
                           .reorder = [](const at::Tensor&) {}};
    const auto message = testing::message_of<UsageError>([&] {
      generate(model, at::ones({2, 1}, at::kLong), options);
    });
    EXPECT_TRUE(testing::contains_all(message, parts));
  };
  refuse({.temperature = 0}, {"generate: temperature is 0", "more than 0"});
  refuse({.num_return_sequences = 2}, {"generate: num_return_sequences is 2, expected 1"});
  refuse({.max_new_tokens = 3, .min_new_tokens = 4}, {"min_new_tokens is 4", "'max_new_tokens', which is 3"});
  refuse({.max_length = 1}, {"max_length is 1, expected more than 1", "max_new_tokens"});
  refuse({.bad_words_ids = {{{6}}}}, {"bad_words_ids", "6 tokens"});
  refuse({.forced_bos_token_id = 2, .suppress_tokens = {{1, 2}}}, {"forced_bos_token_id", "suppress_tokens"});
  refuse({.do_sample = true, .row_seeds = {1, 2, 3}}, {"row_seeds has 3 seeds", "2 rows"});
}

/// The samples of a row depend on its own seed alone.
TEST_F(GenerationSettingsTest, ARowWithASeedOfItsOwnHasItsSamplesInAnyBatch) {
  write(R"({"do_sample": true, "top_k": 0, "temperature": 3.0, "eos_token_id": [2, 3], "pad_token_id": 1})");
  const auto model = AutoModelForCausalLM::from_pretrained(folder_.path());
  model.ptr()->eval();
  at::Tensor tokens = at::full({4, 3}, 7, at::kLong), mask = at::ones({4, 3}, at::kLong);
  tokens[1].narrow(0, 0, 2).fill_(1);
  mask[1].narrow(0, 0, 2).zero_();
  for (const std::int64_t beams : {1, 3}) {
    GenerationConfig options{.row_seeds = {11, 12, 13, 11}, .num_beams = beams, .num_return_sequences = 2};
    const at::Tensor all = generate(model, tokens, mask, options);
    ASSERT_EQ(all.size(0), 8);
    for (std::int64_t row = 0; row < 4; ++row) {
      options.row_seeds = {std::vector<std::uint64_t>{11, 12, 13, 11}[static_cast<std::size_t>(row)]};
      const std::int64_t first = row == 1 ? 2 : 0;
      const at::Tensor alone = generate(model, tokens[row].unsqueeze(0).narrow(1, first, 3 - first), options);
      const at::Tensor own = all.narrow(0, 2 * row, 2).slice(1, first);
      EXPECT_TRUE(at::equal(own.narrow(1, 0, alone.size(1)), alone)) << row << own << alone;
    }
    EXPECT_TRUE(at::equal(all.narrow(0, 0, 2), all.narrow(0, 6, 2)));
  }
}

/// A long text that has ended leaves its batch: the others have room for as many tokens as alone.
TEST_F(GenerationSettingsTest, PaddingTakesNoRoomFromOtherRows) {
  const auto model = AutoModelForCausalLM::from_pretrained(folder_.path());
  model.ptr()->eval();
  at::Tensor tokens = at::full({2, 30}, 7, at::kLong), mask = at::ones({2, 30}, at::kLong);
  mask[1].narrow(0, 0, 28).zero_();
  tokens[1].narrow(0, 0, 28).fill_(1);
  const GenerationConfig endless{.eos_token_id = 100, .pad_token_id = 1};
  const at::Tensor all = generate(model, tokens, mask, endless);
  // 20 tokens by default, but not beyond the model's 32.
  EXPECT_EQ(all.size(1), 50);
  EXPECT_TRUE(all[0].slice(0, 32).eq(1).all().item<bool>());
  EXPECT_TRUE(at::equal(all[1].slice(0, 28), generate(model, tokens.slice(0, 1).slice(1, 28), endless)[0]));
  EXPECT_THROWS(generate(model, tokens, mask, {.max_new_tokens = 4, .eos_token_id = 100}), UsageError,
                "at most 32 tokens; these would be 33");
}

}  // namespace
}  // namespace lockstep::models
