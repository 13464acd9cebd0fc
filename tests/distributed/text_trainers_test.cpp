// The trainers on texts, from the command line to the files that they leave, on one rank and on two.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "job.hpp"
#include "support/tiny_models.hpp"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using launch::read_file;

const std::string kTokenizers = LOCKSTEP_TOKENIZER_DIR;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// The words of a command line without quotes.
Words split(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// Runs a program alone, without the launcher; the error of one that refuses.
Finished run_alone(const Words& words) {
  return LauncherProcess(Words(words.begin() + 1, words.end()), {{"OMP_NUM_THREADS", "1"}}, {}, words.front())
      .wait();
}

nlohmann::json log_of(const std::string& checkpoint) {
  return nlohmann::json::parse(read_file(checkpoint + "/trainer_state.json")).at("log_history");
}

/// The numbers of that name in the log, in order.
std::vector<double> logged(const std::string& checkpoint, const std::string& name) {
  std::vector<double> values;
  for (const auto& entry : log_of(checkpoint)) {
    if (entry.contains(name)) values.push_back(entry.at(name));
  }
  return values;
}

/// A folder for one program: the model, its data and what it leaves.
class TextTrainer : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string write(const std::string& name, const std::string& text) const {
    return folder_.write(name, text);
  }

  /// What all runs have in common.
  Words common() const {
    return {"--device", "cpu", "--disable-tqdm", "--cache-dir", file("cache"), "--model", file("model")};
  }

  /// Expects exit code `status` and one line of error with these parts; nothing may have been trained.
  void expect_refusal(const Words& words, int status, std::initializer_list<std::string_view> parts) const {
    const Finished alone = run_alone(words + Words{"--output-dir", file("refused")});
    EXPECT_EQ(alone.status, status) << alone.err;
    EXPECT_EQ(lines_of(alone.err).size(), 1U) << alone.err;
    EXPECT_TRUE(contains_all(alone.err, parts));
    EXPECT_EQ(count_lines_with(alone.out, "loss"), 0) << alone.out;
    EXPECT_FALSE(fs::exists(file("refused/model.safetensors")));
  }

  /// Changes one value of the model's config.json.
  void set_in_config(const std::string& name, const nlohmann::json& value) const {
    auto config = nlohmann::json::parse(read_file(file("model/config.json")));
    config[name] = value;
    std::ofstream(file("model/config.json")) << config.dump();
  }

 private:
  ScratchFolder folder_;
};

class CausalLm : public TextTrainer {
 protected:
  CausalLm() {
    write_tiny_gpt2(file("model"));
    fs::copy_file(kTokenizers + "/roberta.json", file("model/tokenizer.json"));
  }

  Words words() const {
    return Words{LOCKSTEP_CAUSAL_LM} + common() + Words{"--train-file", LOCKSTEP_TRAINING_TEXT} +
           split("--learning-rate 1e-3 --logging-steps 1 --max-steps 20 --save-steps 20");
  }

  /// "STEP LOSS" of make_causal_lm.py.
  static std::vector<double> losses_of_python() {
    std::ifstream golden(LOCKSTEP_CAUSAL_LM_GOLDEN);
    std::vector<double> losses;
    for (double step = 0, loss = 0; golden >> step >> loss;) losses.push_back(loss);
    return losses;
  }

  void expect_losses_of_python(int ranks, const std::string& batch_size) const {
    const std::string out = file("out" + std::to_string(ranks));
    const Finished job =
        run_job(words() + Words{"--output-dir", out, "--per-device-train-batch-size", batch_size}, ranks);
    ASSERT_EQ(job.status, 0) << job.err;
    const auto losses = logged(out + "/checkpoint-20", "loss");
    const auto expected = losses_of_python();
    ASSERT_EQ(losses.size(), 20U);
    ASSERT_EQ(expected.size(), 20U);
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], 1e-4) << ranks << " rank(s), step " << i + 1;
  }
};

/// Weights, packing, order of the data, loss, clipping, optimizer and schedule: all of it, or the curves
/// part.
TEST_F(CausalLm, HasTheLossesOfPythonOnOneRankAndOnTwo) {
  expect_losses_of_python(2, "4");
  expect_losses_of_python(1, "8");
}

TEST_F(CausalLm, EvaluatesWritesATextAndAModelThatCanBeUsedAgain) {
  const std::string text = write("validation.txt",
                                 "First Citizen:\nSpeak, speak.\nAll:\nResolved. resolved.\n"
                                 "We know't, we know't; and what you are.\n");
  const Words more =
      Words{"--validation-file", text, "--prompt", "First Citizen", "--output-dir", file("out")} +
      split("--sample-tokens 8 --block-size 8 --max-steps 3 --save-strategy no");
  const Finished job = run_job(words() + more, 2);
  ASSERT_EQ(job.status, 0) << job.err;
  for (const char* part : {"eval_loss ", "perplexity ", "eval_accuracy ", "First Citizen"})
    EXPECT_EQ(count_lines_with(job.out, part), 1) << part << " in:\n" << job.out;
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"})
    EXPECT_TRUE(fs::exists(file("out/") + name)) << name;
  const Finished again =
      run_alone(words() + more + Words{"--model", file("out"), "--output-dir", file("two")});
  EXPECT_EQ(again.status, 0) << again.err;
}

TEST_F(CausalLm, RefusesWhatItCannotTrainOn) {
  expect_refusal(words() + Words{"--train-file", file("none.txt")}, 2, {"--train-file", "no such file"});
  expect_refusal(words() + Words{"--train-file", write("empty.txt", "")}, 1, {"empty.txt", "has no rows"});
  expect_refusal(words() + Words{"--train-file", write("short.txt", "few\n")}, 2, {"block of 32 tokens"});
  expect_refusal(words() + Words{"--text-column", "body"}, 2, {"--text-column", "'body'", "'text'"});
  expect_refusal(words() + Words{"--block-size", "33"}, 2, {"--block-size 33", "32 tokens"});
  expect_refusal(
      words() + Words{"--train-file", write("bad.json", "{\"data\": 3}"), "--data-format", "squad"}, 1,
      {"bad.json", "a list at 'data'"});
}

TEST_F(CausalLm, RefusesModelsThatDoNotFit) {
  set_in_config("n_layer", 3);
  expect_refusal(words(), 1, {"h.2.", "missing"});
  set_in_config("n_layer", 1);
  expect_refusal(words(), 1, {"h.1."});
  set_in_config("n_layer", 2);
  set_in_config("n_positions", 64);
  expect_refusal(words(), 1, {"wpe.weight", "32", "64"});
  set_in_config("n_positions", 32);
  set_in_config("vocab_size", 402);
  expect_refusal(words(), 1, {"403 tokens", "402", "do not belong together"});
  set_in_config("model_type", "llama");
  expect_refusal(words(), 1, {"config.json", "llama", "gpt2"});
}

class SequenceClassification : public TextTrainer {
 protected:
  SequenceClassification() {
    write_tiny_bert(file("model"), 160);
    fs::copy_file(kTokenizers + "/bert.json", file("model/tokenizer.json"));
    write("train.csv", rows(96));
    write("test.jsonl", lines(33));
  }

  static std::string text_of(int row, int kind) {
    static const char* const subjects[] = {"citizen", "menenius", "speak"};
    return std::string(row % 2 == 0 ? "what is the " : "not all of you, ") + subjects[kind] +
           std::string(static_cast<std::size_t>(row % 5), '!');
  }

  static std::string rows(int count) {
    std::string text = "text,label\n";
    for (int row = 0; row < count; ++row)
      text += "\"" + text_of(row, row % 3) + "\"," + "class " + std::to_string(row % 3) + "\n";
    return text;
  }

  static std::string lines(int count) {
    std::string text;
    for (int row = 0; row < count; ++row) {
      const nlohmann::json line{{"text", text_of(row + 1, row * 2 % 3)},
                                {"label", "class " + std::to_string(row * 2 % 3)}};
      text += line.dump() + "\n";
    }
    return text;
  }

  Words words() const {
    return Words{LOCKSTEP_SEQUENCE_CLASSIFICATION} + common() +
           Words{"--train-file", file("train.csv"), "--validation-file", file("test.jsonl")} +
           split(
               "--max-length 16 --learning-rate 5e-3 --max-steps 40 --logging-steps 10 --eval-strategy steps "
               "--eval-steps 10 --save-steps 10 --load-best-model-at-end --metric-for-best-model accuracy");
  }
};

TEST_F(SequenceClassification, LearnsTheSameOnOneRankAndOnTwo) {
  const Finished two =
      run_job(words() + Words{"--output-dir", file("two"), "--per-device-train-batch-size", "6"}, 2);
  ASSERT_EQ(two.status, 0) << two.err;
  const Finished one =
      run_job(words() + Words{"--output-dir", file("one"), "--per-device-train-batch-size", "12"}, 1);
  ASSERT_EQ(one.status, 0) << one.err;
  for (const char* name : {"eval_loss", "eval_accuracy", "eval_f1"}) {
    const auto values = logged(file("two/checkpoint-40"), name);
    const auto expected = logged(file("one/checkpoint-40"), name);
    ASSERT_EQ(values.size(), 4U);
    ASSERT_EQ(expected.size(), 4U);
    EXPECT_NEAR(values.front(), expected.front(), 2e-3) << name;
    EXPECT_NEAR(values.back(), expected.back(), 5e-2) << name;
  }
  EXPECT_GE(logged(file("two/checkpoint-40"), "eval_accuracy").back(), 0.95);
  EXPECT_EQ(count_lines_with(two.out, "eval_f1 "), 1) << two.out;
}

TEST_F(SequenceClassification, RefusesWhatItCannotTrainOn) {
  expect_refusal(words() + Words{"--label-column", "category"}, 2,
                 {"--label-column", "'category'", "'label'"});
  expect_refusal(words() + Words{"--train-file", write("one.csv", "text,label\na,x\nb,x\n")}, 1,
                 {"one.csv", "one class only"});
  expect_refusal(words() + Words{"--validation-file", write("v.csv", "text,label\na,class 0\nb,class 7\n")},
                 1, {"v.csv, row 1", "\"class 7\"", "none of the 3 classes"});
  expect_refusal(words() + Words{"--train-file", write("n.csv", "text,label\na,0\nb,-1\n")}, 1,
                 {"row 1", "-1", "from 0 on"});
  expect_refusal(words() + Words{"--train-file", write("e.csv", "text,label\n")}, 1,
                 {"e.csv", "has no rows"});
  expect_refusal(words() + Words{"--max-length", "33"}, 2, {"--max-length 33", "32 tokens"});
  expect_refusal(words() + Words{"--eval-steps", "7"}, 2, {"save"});
  set_in_config("model_type", "gpt2");
  expect_refusal(words(), 1, {"config.json", "gpt2", "bert"});
}

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
    write("sources.txt", sources);
    write("targets.txt", targets);
  }

  Words words() const {
    return Words{LOCKSTEP_TRANSLATION, "--cache-dir", file("cache"), "--tokenizer",
                 kTokenizers + "/roberta.json"} +
           split(
               "--device cpu --disable-tqdm --d-model 32 --layers 1 --heads 2 --max-steps 60 --save-steps 60 "
               "--learning-rate 5e-3 --eval-strategy steps --eval-steps 20 --num-beams 2 "
               "--max-target-length 16");
  }
};

TEST_F(Translation, LearnsToSwapWords) {
  const Words data{"--train-file", file("pairs.jsonl"), "--validation-file", file("pairs.jsonl")};
  const Finished job = run_job(words() + data + Words{"--output-dir", file("out")}, 2);
  ASSERT_EQ(job.status, 0) << job.err;
  const auto losses = logged(file("out/checkpoint-60"), "eval_loss");
  ASSERT_EQ(losses.size(), 3U);
  EXPECT_LT(losses.back(), 0.7 * losses.front());
  EXPECT_GT(logged(file("out/checkpoint-60"), "eval_token_accuracy").back(), 0.5);
  EXPECT_EQ(count_lines_with(job.out, "bleu "), 1) << job.out;
  EXPECT_TRUE(fs::exists(file("out/config.json")));
}

TEST_F(Translation, RefusesSidesThatDoNotFit) {
  const Words sources{"--train-file", file("sources.txt"), "--source-column",
                      "text",         "--target-column",   "text"};
  expect_refusal(words() + sources + Words{"--train-target-file", write("few.txt", "one\n")}, 1,
                 {"few.txt has 1 rows for 60 texts", "'id'"});
  expect_refusal(words() + Words{"--train-file", file("pairs.jsonl"), "--target-column", "german"}, 2,
                 {"--target-column", "'german'", "'target'"});
}

}  // namespace
}  // namespace lockstep::testing
