// The trainer on pairs of texts, on one rank and on two.

#include <filesystem>

#include "support/tiny_models.hpp"
#include "text_trainer.hpp"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

const std::string kTokenizers = LOCKSTEP_TOKENIZER_DIR;

class Translation : public TextTrainer {
 protected:
  Translation() {
    std::string pairs, sources, targets;
    static const char* const words[] = {"speak", "citizen", "people", "corn", "hungry"};
    for (int row = 0; row < 60; ++row) {
      const std::string one = words[row % 5], other = words[row / 5 % 5];
      pairs += nlohmann::json{{"source", one + " " + other}, {"target", other + " " + one}}.dump() + "\n";
      sources += one + " " + other + "\n";
      targets += other + " " + one + "\n";
    }
    write("pairs.jsonl", pairs);
    write_tiny_bart(file("model"));
    copy_generic_tokenizer(kTokenizers + "/roberta.json", file("model"));
    write("sources.txt", sources);
    write("targets.txt", targets);
  }

  Words words() const {
    return Words{LOCKSTEP_TRANSLATION, "--cache-dir", file("cache"), "--tokenizer",
                 kTokenizers + "/roberta.json"} +
           split(
               "--device cpu --disable-tqdm --d-model 32 --layers 1 --heads 2 --max-steps 60 --save-steps 60 "
               "--learning-rate 5e-3 --eval-strategy steps --eval-steps 20 "
               "--max-target-length 16");
  }

  /// The 64 pairs of make_translation.py.
  static std::string golden_pairs() {
    static const char* const words[] = {"speak", "citizen", "people", "corn", "hungry"};
    std::string pairs;
    for (int row = 0; row < 64; ++row) {
      std::string source, target;
      for (int i = 0; i < 1 + row % 5; ++i) {
        const std::string word = words[(row + i * i) % 5];
        source += (i == 0 ? "" : " ") + word;
        target = word + (i == 0 ? "" : " ") + target;
      }
      pairs += nlohmann::json{{"source", source}, {"target", target}}.dump() + "\n";
    }
    return pairs;
  }

  /// Trains the model in "model" on these pairs.
  Words tuning_words() const {
    return Words{LOCKSTEP_TRANSLATION} + common() + Words{"--train-file", file("golden.jsonl")} +
           split(
               "--max-source-length 32 --max-target-length 32 --learning-rate 1e-3 --logging-steps 1 "
               "--max-steps 40 --save-steps 40");
  }

  void expect_losses_of_python(int ranks, const std::string& batch_size) const {
    const std::string out = file("golden" + std::to_string(ranks));
    const Finished job = run_job(
        tuning_words() + Words{"--output-dir", out, "--per-device-train-batch-size", batch_size}, ranks);
    ASSERT_EQ(job.status, 0) << job.err;
    const auto losses = logged(out + "/checkpoint-40", "loss");
    const auto expected = golden_losses(LOCKSTEP_TRANSLATION_GOLDEN);
    ASSERT_EQ(losses.size(), 40U);
    ASSERT_EQ(expected.size(), 40U);
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], 1e-4) << ranks << " rank(s), step " << i + 1;
  }
};

/// Covers weights, tokens, padding, order of the data, loss over tokens, optimizer and schedule of
/// transformers' BART.
TEST_F(Translation, HasTheLossesOfPythonOnOneRankAndOnTwo) {
  write("golden.jsonl", golden_pairs());
  expect_losses_of_python(2, "4");
  expect_losses_of_python(1, "8");
}

TEST_F(Translation, LearnsToSwapWords) {
  const Words data{"--train-file", file("pairs.jsonl"), "--validation-file", file("pairs.jsonl")};
  const Finished job =
      run_job(words() + data + split("--num-beams 2") + Words{"--output-dir", file("out")}, 2);
  ASSERT_EQ(job.status, 0) << job.err;
  const auto losses = logged(file("out/checkpoint-60"), "eval_loss");
  ASSERT_EQ(losses.size(), 3U);
  EXPECT_LT(losses.back(), 0.7 * losses.front());
  EXPECT_GT(logged(file("out/checkpoint-60"), "eval_token_accuracy").back(), 0.5);
  EXPECT_EQ(count_lines_with(job.out, "bleu "), 1) << job.out;
  EXPECT_TRUE(fs::exists(file("out/config.json")));
}

/// As Seq2SeqTrainer's predict_with_generate; flags outweigh the folder.
TEST_F(Translation, TranslatesWithTheSettingsOfTheModelsFolder) {
  write("golden.jsonl", golden_pairs());
  const auto translations = [&](const char* settings, const Words& more) {
    write("model/generation_config.json", settings);
    const Words data{"--validation-file", file("golden.jsonl"), "--output-dir", file("out")};
    const Finished done = run_alone(tuning_words() + split("--max-steps 1 --samples 8") + data + more);
    EXPECT_EQ(done.status, 0) << done.err;
    std::string lines;
    for (const auto& line : lines_of(done.out)) {
      if (line.starts_with("'") || line.starts_with("bleu ")) lines += line + "\n";
    }
    fs::remove_all(file("out"));
    return lines;
  };
  const char* plain = R"({"eos_token_id": 2, "decoder_start_token_id": 2})";
  const char* set =
      R"({"eos_token_id": 2, "decoder_start_token_id": 2, "num_beams": 3, "no_repeat_ngram_size": 1, "max_length": 5})";
  const std::string greedy = translations(plain, {});
  EXPECT_EQ(lines_of(greedy).size(), 9U) << greedy;
  const std::string with_folder = translations(set, {});
  EXPECT_FALSE(greedy == with_folder);
  EXPECT_FALSE(with_folder == translations(set, split("--num-beams 1")));
  EXPECT_FALSE(with_folder == translations(plain, split("--num-beams 3")));
  write("model/generation_config.json", R"({"num_beam_groups": 3})");
  expect_refusal(tuning_words() + Words{"--validation-file", file("golden.jsonl")}, 1,
                 {"model/generation_config.json", "'num_beam_groups' is 3"});
}

/// Three of four rows on each side have a partner; ids may be texts or numbers.
TEST_F(Translation, JoinsSidesByTheirIds) {
  for (const std::string quote : {"", "\""}) {
    const auto side = [&](const std::string& name, int first, const char* column) {
      std::string rows;
      for (int row = 3; row >= 0; --row)
        rows +=
            "{\"id\": " + quote + std::to_string(first + row) + quote + ", \"" + column + "\": \"corn\"}\n";
      return write(name, rows);
    };
    const Finished job =
        run_alone(words() + split("--max-steps 1 --eval-strategy no") +
                  Words{"--output-dir", file("out" + quote), "--train-file", side("s.jsonl", 10, "source"),
                        "--train-target-file", side("t.jsonl", 11, "target")});
    ASSERT_EQ(job.status, 0) << job.err;
    EXPECT_TRUE(contains_all(job.out, {"training on 3 pairs"})) << job.out;
  }
}

TEST_F(Translation, RefusesSidesThatDoNotFit) {
  const Words sources{"--train-file", file("sources.txt"), "--source-column",
                      "text",         "--target-column",   "text"};
  expect_refusal(words() + sources + Words{"--train-target-file", write("few.txt", "one\n")}, 1,
                 {"few.txt has 1 rows for 60 texts", "'id'"});
  expect_refusal(words() + Words{"--train-file", file("pairs.jsonl"), "--target-column", "german"}, 2,
                 {"--target-column", "'german'", "'target'"});
}

/// BLEU is computed once, for the trained model.
TEST_F(Translation, RefusesToJudgeCheckpointsByBleu) {
  const Words data{"--train-file", file("pairs.jsonl"), "--validation-file", file("pairs.jsonl")};
  expect_refusal(words() + data + Words{"--metric-for-best-model", "bleu"}, 2,
                 {"'eval_bleu'", "eval_loss, eval_token_accuracy"});
}

TEST_F(Translation, RefusesModelsDataAndArgumentsThatDoNotFit) {
  write("golden.jsonl", golden_pairs());
  expect_refusals_of_arguments(tuning_words());
  expect_refusal(tuning_words() + Words{"--train-file", write("empty.jsonl", "")}, 1,
                 {"empty.jsonl", "has no rows"});
  expect_refusal(tuning_words() + split("--max-source-length 33"), 2, {"--max-source-length", "32", "33"});
  set_in_config("decoder_layers", 3);
  expect_refusal(tuning_words(), 1, {"decoder.layers.2.", "missing"});
  set_in_config("decoder_layers", 1);
  expect_refusal(tuning_words(), 1, {"decoder.layers.1."});
  set_in_config("decoder_layers", 2);
  set_in_config("encoder_ffn_dim", 64);
  expect_refusal(tuning_words(), 1, {"fc1", "128", "64"});
  set_in_config("encoder_ffn_dim", 128);
  set_in_config("model_type", "t5");
  expect_refusal(tuning_words(), 1, {"config.json", "t5", "bart"});
}

}  // namespace
}  // namespace lockstep::testing
