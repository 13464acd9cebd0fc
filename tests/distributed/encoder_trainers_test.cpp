// The trainers of encoders, from the command line to the files that they write, on one rank and on two.

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "support/tiny_models.hpp"
#include "text_trainer.hpp"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using launch::read_file;

const std::string kTokenizers = LOCKSTEP_TOKENIZER_DIR;

class EncoderTrainer : public TextTrainer {
 protected:
  EncoderTrainer() {
    write_tiny_bert(file("model"), 160);
    fs::copy_file(kTokenizers + "/bert.json", file("model/tokenizer.json"));
  }

  /// The losses of 20 steps, of which the second half is run again from the checkpoint in the middle.
  void expect_same_losses_when_resumed(const Words& words) {
    const Words all = words + Words{"--output-dir", file("resumed")} +
                      split("--max-steps 20 --save-steps 10 --logging-steps 1 --eval-strategy no");
    const Finished first = run_alone(all);
    ASSERT_EQ(first.status, 0) << first.err;
    const auto whole = logged(file("resumed/checkpoint-20"), "loss");
    ASSERT_EQ(whole.size(), 20U);
    fs::remove_all(file("resumed/checkpoint-20"));
    const Finished second = run_alone(all);
    ASSERT_EQ(second.status, 0) << second.err;
    EXPECT_EQ(logged(file("resumed/checkpoint-20"), "loss"), whole);
  }
};

class TokenClassification : public EncoderTrainer {
 protected:
  TokenClassification() {
    write("train.jsonl", rows(96, 0));
    write("test.jsonl", rows(33, 5));
  }

  /// A person of one word, a place of two, and other words: the tag of "of" depends on the word before it.
  static std::string rows(int count, int first) {
    static const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> parts = {
        {{"citizen"}, {"B-PER"}},
        {{"menenius", "of"}, {"B-LOC", "I-LOC"}},
        {{"speak"}, {"O"}},
        {{"all", "of"}, {"O", "O"}}};
    std::string lines;
    for (int row = first; row < first + count; ++row) {
      std::vector<std::string> words, tags;
      for (int i = 0; i < 1 + row % 4; ++i) {
        const auto& [more, their_tags] = parts[static_cast<std::size_t>((row * 7 + i * i * 3 + row / 5) % 4)];
        words.insert(words.end(), more.begin(), more.end());
        tags.insert(tags.end(), their_tags.begin(), their_tags.end());
      }
      lines += nlohmann::json{{"tokens", words}, {"ner_tags", tags}}.dump() + "\n";
    }
    return lines;
  }

  Words words() const {
    return Words{LOCKSTEP_TOKEN_CLASSIFICATION} + common() +
           Words{"--train-file", file("train.jsonl"), "--validation-file", file("test.jsonl")} +
           split(
               "--max-length 24 --learning-rate 5e-3 --max-steps 40 --logging-steps 10 --eval-strategy steps "
               "--eval-steps 10 --save-steps 10 --load-best-model-at-end --metric-for-best-model f1");
  }
};

TEST_F(TokenClassification, LearnsTheSameOnOneRankAndOnTwo) {
  const Finished two =
      run_job(words() + Words{"--output-dir", file("two"), "--per-device-train-batch-size", "6"}, 2);
  ASSERT_EQ(two.status, 0) << two.err;
  const Finished one =
      run_job(words() + Words{"--output-dir", file("one"), "--per-device-train-batch-size", "12"}, 1);
  ASSERT_EQ(one.status, 0) << one.err;
  for (const char* name : {"eval_loss", "eval_precision", "eval_recall", "eval_f1", "eval_accuracy"}) {
    const auto values = logged(file("two/checkpoint-40"), name);
    const auto expected = logged(file("one/checkpoint-40"), name);
    ASSERT_EQ(values.size(), 4U);
    ASSERT_EQ(expected.size(), 4U);
    EXPECT_NEAR(values.back(), expected.back(), 5e-2) << name;
  }
  // Every token has the same weight, whatever the padding of its batch.
  EXPECT_NEAR(logged(file("two/checkpoint-40"), "loss").front(),
              logged(file("one/checkpoint-40"), "loss").front(), 2e-3);
  EXPECT_GE(logged(file("two/checkpoint-40"), "eval_f1").back(), 0.95);
  EXPECT_EQ(count_lines_with(two.out, "eval_f1 "), 1) << two.out;
  const auto config = nlohmann::json::parse(read_file(file("two/config.json")));
  EXPECT_EQ(config.at("architectures"), nlohmann::json({"BertForTokenClassification"}));
  EXPECT_EQ(config.at("id2label"),
            (nlohmann::json{{"0", "B-LOC"}, {"1", "B-PER"}, {"2", "I-LOC"}, {"3", "O"}}));
}

/// The trained model is the start of another training, whose scores are those of its end.
TEST_F(TokenClassification, ReportsEachTypeOfATrainedModel) {
  const Finished job = run_alone(words() + Words{"--output-dir", file("out"), "--label-all-tokens"});
  ASSERT_EQ(job.status, 0) << job.err;
  const Finished again =
      run_alone(words() + Words{"--model", file("out"), "--output-dir", file("again")} +
                split("--learning-rate 1e-9 --max-steps 10 --return-entity-level-metrics"));
  ASSERT_EQ(again.status, 0) << again.err;
  for (const char* name : {"eval_LOC_f1", "eval_PER_f1", "eval_f1"})
    EXPECT_GE(logged(file("again/checkpoint-10"), name).front(), 0.95) << name;
  EXPECT_GT(logged(file("again/checkpoint-10"), "eval_PER_number").front(), 0);
}

TEST_F(TokenClassification, ContinuesWhereItStopped) {
  expect_same_losses_when_resumed(words() + split("--no-load-best-model-at-end"));
}

TEST_F(TokenClassification, RefusesWhatItCannotTrainOn) {
  expect_refusal(words() + Words{"--label-column", "tags"}, 2, {"--label-column", "'tags'", "'ner_tags'"});
  expect_refusal(words() + Words{"--text-column", "words"}, 2, {"--text-column", "'words'", "'tokens'"});
  expect_refusal(words() + Words{"--max-length", "33"}, 2, {"--max-length 33", "32 tokens"});
  expect_refusal(words() + Words{"--train-file", write("n.jsonl", R"({"tokens": ["a"], "labels": [0]})"
                                                                  "\n"
                                                                  R"({"tokens": ["a"], "labels": [1]})"
                                                                  "\n")},
                 1, {"n.jsonl", "numbers without names", "id2label"});
  expect_refusal(
      words() + Words{"--validation-file", write("v.jsonl", R"({"tokens": ["a"], "ner_tags": ["B-ORG"]})"
                                                            "\n")},
      1, {"v.jsonl, row 0", "\"B-ORG\"", "not one of the 4 classes"});
  expect_refusal(
      words() + Words{"--train-file", write("w.jsonl", R"({"tokens": ["a", "b"], "ner_tags": ["O", "B-X"]})"
                                                       "\n"
                                                       R"({"tokens": ["a", "b"], "ner_tags": ["O"]})"
                                                       "\n")},
      1, {"row 1", "2 words", "1 labels"});
}

class MaskedLm : public EncoderTrainer {
 protected:
  Words words() const {
    return Words{LOCKSTEP_MASKED_LM} + common() + Words{"--train-file", LOCKSTEP_TRAINING_TEXT} +
           split("--max-seq-length 16 --learning-rate 3e-3 --logging-steps 1 --max-steps 20 --save-steps 20");
  }

  std::vector<double> losses_of(const std::string& folder, int ranks, const std::string& flags) const {
    const Finished job = run_job(words() + Words{"--output-dir", file(folder)} + split(flags), ranks);
    EXPECT_EQ(job.status, 0) << job.err;
    return logged(file(folder) + "/checkpoint-20", "loss");
  }
};

/// The same tokens are masked on any number of ranks.
TEST_F(MaskedLm, HasTheSameLossesOnOneRankAndOnTwo) {
  for (const std::string& flags : {std::string("--mlm-probability 0.3"),
                                   std::string("--line-by-line --whole-word-mask --mlm-probability 0.4")}) {
    const auto two = losses_of("two", 2, flags + " --per-device-train-batch-size 4");
    const auto one = losses_of("one", 1, flags + " --per-device-train-batch-size 8");
    const auto sharded =
        losses_of("sharded", 2, flags + " --per-device-train-batch-size 4 --fsdp full_shard");
    ASSERT_EQ(two.size(), 20U);
    ASSERT_EQ(one.size(), 20U);
    ASSERT_EQ(sharded.size(), 20U);
    for (std::size_t i = 0; i < 20; ++i) {
      EXPECT_NEAR(two[i], one[i], 1e-3) << flags << ", step " << i + 1;
      EXPECT_NEAR(sharded[i], two[i], 1e-5) << flags << ", step " << i + 1;
    }
    const auto mean_from = [&](std::size_t first) {
      return std::accumulate(two.begin() + static_cast<std::ptrdiff_t>(first),
                             two.begin() + static_cast<std::ptrdiff_t>(first) + 5, 0.0) /
             5;
    };
    EXPECT_LT(mean_from(15), mean_from(0) - 0.1) << flags;
    for (const char* folder : {"two", "one", "sharded"}) fs::remove_all(file(folder));
  }
}

TEST_F(MaskedLm, EvaluatesAndWritesAModelThatCanBeUsedAgain) {
  const std::string text =
      write("validation.txt", "First Citizen:\nSpeak, speak.\n\nAll:\nResolved. resolved.\n");
  const Words more = Words{"--validation-file", text, "--output-dir", file("out")} +
                     split("--max-steps 3 --save-strategy no --line-by-line --mlm-probability 0.5");
  const Finished job = run_job(words() + more, 2);
  ASSERT_EQ(job.status, 0) << job.err;
  for (const char* part : {"eval_loss ", "perplexity ", "eval_accuracy ", "new: cls.predictions.bias"})
    EXPECT_EQ(count_lines_with(job.out, part), 1) << part << " in:\n" << job.out;
  const auto config = nlohmann::json::parse(read_file(file("out/config.json")));
  EXPECT_EQ(config.at("architectures"), nlohmann::json({"BertForMaskedLM"}));
  const Finished again =
      run_alone(words() + more + Words{"--model", file("out"), "--output-dir", file("two")});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(count_lines_with(again.out, "new: "), 0) << again.out;
  const Finished fresh = run_alone(words() + more + Words{"--from-scratch", "--output-dir", file("fresh")});
  EXPECT_EQ(fresh.status, 0) << fresh.err;
}

TEST_F(MaskedLm, ContinuesWhereItStopped) { expect_same_losses_when_resumed(words()); }

TEST_F(MaskedLm, RefusesWhatItCannotTrainOn) {
  expect_refusal(words() + Words{"--max-seq-length", "33"}, 2, {"--max-seq-length 33", "32 tokens"});
  expect_refusal(words() + Words{"--mlm-probability", "0"}, 2, {"--mlm-probability 0", "nothing to predict"});
  expect_refusal(words() + Words{"--train-file", write("blank.txt", " \n\t\n"), "--line-by-line"}, 1,
                 {"blank.txt", "nothing but white space"});
  expect_refusal(words() + Words{"--train-file", write("short.txt", "few\n")}, 2, {"block of 16 tokens"});
}

TEST_F(MaskedLm, TrainsAHeadWithWeightsOfItsOwn) {
  set_in_config("tie_word_embeddings", false);
  EXPECT_EQ(losses_of("untied", 1, "").size(), 20U);
  const std::string saved = read_file(file("untied/model.safetensors"));
  EXPECT_NE(saved.find("cls.predictions.decoder.weight"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::testing
