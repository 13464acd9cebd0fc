// The trainers on texts, from the command line to the files that they write, on one rank and on two.

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/core/runtime/program.hpp"
#include "lost_rank.hpp"
#include "support/tiny_models.hpp"
#include "text_trainer.hpp"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using launch::read_file;

const std::string kTokenizers = LOCKSTEP_TOKENIZER_DIR;

class CausalLm : public TextTrainer {
 protected:
  CausalLm() {
    write_tiny_gpt2(file("model"));
    copy_generic_tokenizer(kTokenizers + "/roberta.json", file("model"));
  }

  Words words() const {
    return Words{LOCKSTEP_CAUSAL_LM} + common() + Words{"--train-file", LOCKSTEP_TRAINING_TEXT} +
           split("--learning-rate 1e-3 --logging-steps 1 --max-steps 20 --save-steps 20");
  }

  void expect_losses_of_python(int ranks, const std::string& batch_size, const Words& more = {}) const {
    const std::string out = file("out" + std::to_string(ranks));
    const Finished job = run_job(
        words() + Words{"--output-dir", out, "--per-device-train-batch-size", batch_size} + more, ranks);
    ASSERT_EQ(job.status, 0) << job.err;
    const auto losses = logged(out + "/checkpoint-20", "loss");
    const auto expected = golden_losses(LOCKSTEP_CAUSAL_LM_GOLDEN);
    ASSERT_EQ(losses.size(), 20U);
    ASSERT_EQ(expected.size(), 20U);
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], 1e-4) << ranks << " rank(s), step " << i + 1;
  }
};

/// Covers weights, packing, order of the data, loss, clipping, optimizer and schedule: a difference in any of
/// them would change the losses.
TEST_F(CausalLm, HasTheLossesOfPythonOnOneRankAndOnTwo) {
  expect_losses_of_python(2, "4");
  expect_losses_of_python(1, "8");
}

/// Also if one rank resumes in the middle, without sharding.
TEST_F(CausalLm, HasTheLossesOfPythonWhenFullySharded) {
  expect_losses_of_python(2, "4", split("--fsdp full_shard --gradient-checkpointing --save-steps 10"));
  fs::rename(file("out2"), file("out1"));
  fs::remove_all(file("out1/checkpoint-20"));
  expect_losses_of_python(1, "8");
  EXPECT_TRUE(fs::exists(file("out1/checkpoint-20")));
}

/// Each rank draws the same numbers as without sharding, also in a recomputation.
TEST_F(CausalLm, HasTheSameDropoutWhenFullySharded) {
  auto config = nlohmann::json::parse(read_file(file("model/config.json")));
  for (const char* name : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config[name] = 0.3;
  write("model/config.json", config.dump());
  const auto losses_with = [&](const std::string& folder, const std::string& flags) {
    const Finished job = run_job(words() + Words{"--output-dir", file(folder)} + split(flags), 2);
    EXPECT_EQ(job.status, 0) << job.err;
    return logged(file(folder) + "/checkpoint-20", "loss");
  };
  const auto whole = losses_with("whole", "--seed 3"), again = losses_with("again", "--seed 4");
  const auto sharded = losses_with("sharded", "--seed 3 --fsdp full_shard --gradient-checkpointing");
  ASSERT_EQ(whole.size(), 20U);
  ASSERT_EQ(sharded.size(), 20U);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_NEAR(sharded[i], whole[i], 1e-5) << i;
  EXPECT_GT(std::abs(again[0] - whole[0]), 1e-3);
}

/// The new process tokenizes nothing, and waits for nobody who does.
TEST_F(CausalLm, LosesARankAndLearnsTheSame) {
  const auto start = [&](const std::string& name) {
    return start_job(words() + Words{"--output-dir", file(name)} +
                         split("--max-steps 200 --save-steps 200 --report-to jsonl"),
                     2, {"--max-recoveries", "2"});
  };
  const Finished whole = start("whole")->wait();
  ASSERT_EQ(whole.status, 0) << whole.err;
  const auto job = start("lost");
  kill_rank(1, file("lost"), [&] { return lines_of(read_file(file("lost/runs/metrics.jsonl"))).size() > 8; });
  const Finished lost = job->wait();
  ASSERT_EQ(lost.status, 0) << lost.err;
  EXPECT_EQ(count_lines_with(lost.err, "all ranks are there again after"), 1) << lost.err;
  EXPECT_EQ(logged(file("lost/checkpoint-200"), "loss").size(), 200U);
  EXPECT_EQ(logged(file("lost/checkpoint-200"), "loss"), logged(file("whole/checkpoint-200"), "loss"));
  EXPECT_TRUE(read_file(file("whole/model.safetensors")) == read_file(file("lost/model.safetensors")));
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

/// A text that fills a block attends only to itself; of two texts in a block, the second does not attend to
/// the first.
TEST_F(CausalLm, PackedTextsDoNotLookAtEachOther) {
  const auto losses_of = [&](const std::string& text, const std::string& flags) {
    std::string lines;
    for (int i = 0; i < 16; ++i) lines += nlohmann::json{{"text", text}}.dump() + "\n";
    const Words more{"--train-file", write("texts.jsonl", lines), "--output-dir", file("out")};
    fs::remove_all(file("out"));
    const Finished job =
        run_alone(words() + more + split("--block-size 8 --max-steps 2 --save-steps 2 " + flags));
    EXPECT_EQ(job.status, 0) << job.err;
    return logged(file("out") + "/checkpoint-2", "loss");
  };
  // With the two special tokens that the tokenizer puts around each text, 8 and 4 tokens.
  const std::string whole = "a b c d e f", half = "a b";
  EXPECT_EQ(losses_of(whole, "--packing"), losses_of(whole, ""));
  const auto apart = losses_of(half, "--packing"), joined = losses_of(half, "");
  ASSERT_EQ(apart.size(), 2U);
  EXPECT_GT(std::abs(apart[0] - joined[0]), 1e-4);
  // Two texts in a block have the same weight as each in its own block.
  const auto alone = losses_of(half, "--block-size 4 --per-device-train-batch-size 16");
  const auto packed = losses_of(half, "--packing --per-device-train-batch-size 8");
  EXPECT_NEAR(packed[0], alone[0], 1e-5);
}

/// Smoothing penalizes a confident model.
TEST_F(CausalLm, SmoothsLabels) {
  const auto loss_with = [&](const std::string& factor) {
    const std::string out = file("smooth" + factor);
    const Finished job = run_alone(words() + Words{"--output-dir", out, "--label-smoothing-factor", factor});
    EXPECT_EQ(job.status, 0) << job.err;
    return logged(out + "/checkpoint-20", "loss");
  };
  const auto plain = loss_with("0"), smooth = loss_with("0.2");
  ASSERT_EQ(plain.size(), smooth.size());
  EXPECT_GT(smooth.back(), plain.back() + 0.05);
}

TEST_F(CausalLm, RefusesWhatItCannotTrainOn) {
  expect_refusal(words() + Words{"--train-file", file("none.txt")}, 2, {"--train-file", "no such file"});
  expect_refusal(words() + Words{"--train-file", file("none.txt"), "--lora-target-modules", "c_attn"}, 2,
                 {"--lora-target-modules", "--lora-r"});
  expect_refusal(words() + Words{"--train-file", write("empty.txt", "")}, 1, {"empty.txt", "has no rows"});
  expect_refusal(words() + Words{"--train-file", write("short.txt", "few\n")}, 2, {"block of 32 tokens"});
  expect_refusal(words() + Words{"--text-column", "body"}, 2, {"--text-column", "'body'", "'text'"});
  expect_refusal(words() + Words{"--block-size", "33"}, 2, {"--block-size 33", "32 tokens"});
  expect_refusal(words() + Words{"--block-size", "1"}, 2, {"--block-size 1", "nothing to predict"});
  expect_refusal(
      words() + Words{"--train-file", write("bad.json", "{\"data\": 3}"), "--data-format", "squad"}, 1,
      {"bad.json", "a list at 'data'"});
}

TEST_F(CausalLm, RefusesModelsAndArgumentsThatDoNotFit) {
  expect_refusals_of_arguments(words());
  expect_refusal(words() + split("--eval-strategy steps"), 2,
                 {"eval_strategy is steps", "no data set", "--validation-file"});
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
  set_in_config("model_type", "falcon");
  expect_refusal(words(), 1, {"config.json", "falcon", "gpt2"});
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

/// Keeps the model's names, whatever order the data have; they are saved with the trained model and used for
/// its predictions.
TEST_F(SequenceClassification, KeepsTheNamesOfTheModel) {
  const nlohmann::json names{{"0", "class 2"}, {"1", "class 0"}, {"2", "class 1"}};
  set_in_config("id2label", names);
  const Finished job = run_alone(words() + Words{"--output-dir", file("out")});
  ASSERT_EQ(job.status, 0) << job.err;
  EXPECT_GE(logged(file("out/checkpoint-40"), "eval_accuracy").back(), 0.95);
  const auto config = nlohmann::json::parse(read_file(file("out/config.json")));
  EXPECT_EQ(config.at("id2label"), names);
  EXPECT_EQ(config.at("label2id"), (nlohmann::json{{"class 2", 0}, {"class 0", 1}, {"class 1", 2}}));
  // Training continues from what it knew: its first evaluation is not worse.
  const Finished again = run_alone(words() + Words{"--model", file("out"), "--output-dir", file("again")} +
                                   split("--learning-rate 1e-9 --max-steps 10"));
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_GE(logged(file("again/checkpoint-10"), "eval_accuracy").front(), 0.95);
  // Classes that the model does not name are rejected, unless it gets a new classifier.
  const Words others = words() + Words{"--model", file("out"), "--train-file",
                                       write("others.csv", "text,label\na,class 0\nb,other\n")};
  expect_refusal(others, 1, {"others.csv", "does not name: 'other'", "'class 2', 'class 0', 'class 1'"});
  const Finished fresh =
      run_alone(others + Words{"--new-classifier", "--validation-file", "", "--output-dir", file("fresh")} +
                split("--eval-strategy no --max-steps 1 --no-load-best-model-at-end"));
  ASSERT_EQ(fresh.status, 0) << fresh.err;
  EXPECT_EQ(nlohmann::json::parse(read_file(file("fresh/config.json"))).at("id2label"),
            (nlohmann::json{{"0", "class 0"}, {"1", "other"}}));
}

/// A model without names gets the data's.
TEST_F(SequenceClassification, SavesTheNamesOfTheData) {
  const Finished job = run_alone(words() + Words{"--output-dir", file("out")} + split("--max-steps 10"));
  ASSERT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(nlohmann::json::parse(read_file(file("out/config.json"))).at("id2label"),
            (nlohmann::json{{"0", "class 0"}, {"1", "class 1"}, {"2", "class 2"}}));
}

/// With labels that give a sixth to each of the other two classes, the entropy is 0.8676: no loss is below
/// it.
TEST_F(SequenceClassification, SmoothsLabels) {
  const Finished job =
      run_alone(words() + Words{"--output-dir", file("smooth"), "--label-smoothing-factor", "0.5"});
  ASSERT_EQ(job.status, 0) << job.err;
  const auto losses = logged(file("smooth/checkpoint-40"), "eval_loss");
  ASSERT_FALSE(losses.empty());
  for (const double loss : losses) EXPECT_GT(loss, 0.867);
}

TEST_F(SequenceClassification, RefusesWhatItCannotTrainOn) {
  expect_refusal(words() + Words{"--label-column", "category"}, 2,
                 {"--label-column", "'category'", "'label'"});
  expect_refusal(words() + Words{"--train-file", write("one.csv", "text,label\na,x\nb,x\n")}, 1,
                 {"one.csv", "one class only"});
  expect_refusal(words() + Words{"--validation-file", write("v.csv", "text,label\na,class 0\nb,class 7\n")},
                 1, {"v.csv, row 1", "\"class 7\"", "not one of the 3 classes"});
  expect_refusal(words() + Words{"--train-file", write("n.csv", "text,label\na,0\nb,-1\n")}, 1,
                 {"row 1", "-1", "from 0 on"});
  expect_refusal(words() + Words{"--train-file", write("e.csv", "text,label\n")}, 1,
                 {"e.csv", "has no rows"});
  expect_refusal(words() + Words{"--max-length", "33"}, 2, {"--max-length 33", "32 tokens"});
  expect_refusal(words() + Words{"--eval-steps", "7"}, 2, {"save_steps", "10 is none of 7"});
  expect_refusal(words() + Words{"--metric-for-best-model", "acuracy"}, 2,
                 {"'eval_acuracy'", "eval_accuracy, eval_f1"});
  expect_refusals_of_arguments(words());
}

TEST_F(SequenceClassification, RefusesModelsThatDoNotFit) {
  set_in_config("num_hidden_layers", 3);
  expect_refusal(words(), 1, {"layer.2.", "missing"});
  set_in_config("num_hidden_layers", 1);
  expect_refusal(words(), 1, {"layer.1."});
  set_in_config("num_hidden_layers", 2);
  set_in_config("max_position_embeddings", 64);
  expect_refusal(words(), 1, {"position_embeddings.weight", "32", "64"});
  set_in_config("max_position_embeddings", 32);
  set_in_config("model_type", "gpt2");
  expect_refusal(words(), 1, {"config.json", "gpt2", "bert"});
}

/// Precision, order, length and trackers together, on any number of ranks.
TEST_F(SequenceClassification, TakesItsArgumentsTogether) {
  const Words more = split(
      "--bf16 --train-sampling-strategy group_by_length --global-batch-size 12 --max-duration 3ep "
      "--max-steps=-1 --report-to jsonl,csv,tensorboard --dataloader-num-workers 1 --logging-steps 1 "
      "--eval-strategy epoch --save-strategy epoch");
  for (const int ranks : {1, 2}) {
    const std::string out = file("together" + std::to_string(ranks));
    const Words words_of_it =
        words() + more +
        Words{"--output-dir", out, "--per-device-train-batch-size", std::to_string(12 / ranks)};
    const Finished job = run_job(words_of_it, ranks);
    ASSERT_EQ(job.status, 0) << job.err;
    EXPECT_EQ(job.err, "");
    EXPECT_EQ(logged(out + "/checkpoint-24", "loss").size(), 24U);
    EXPECT_EQ(lines_of(read_file(out + "/runs/metrics.csv")).size(), 1U + 24 + 3 + 1 + 1);
  }
  const auto one = logged(file("together1/checkpoint-24"), "loss");
  const auto two = logged(file("together2/checkpoint-24"), "loss");
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(two[i], one[i], 1e-2) << "step " << i + 1;
}

/// A signal in a long evaluation is noticed before its end, and the evaluation is finished when the job
/// resumes.
TEST_F(SequenceClassification, StopsInTheMiddleOfAnEvaluation) {
  write("test.jsonl", lines(6001));
  const Words more = Words{"--output-dir", file("out")} +
                     split("--max-steps 10 --logging-steps 1 --report-to jsonl --per-device-eval-batch-size");
  auto job = start_job(words() + more + Words{"1"}, 2);
  ASSERT_TRUE(launch::eventually([&] {
    const auto tracked = file("out/runs/metrics.jsonl");
    return fs::exists(tracked) && count_lines_with(read_file(tracked), "\"step\":10") == 1;
  }));
  job->signal(SIGUSR1);
  const Finished stopped = job->wait();
  EXPECT_EQ(stopped.status, kPreemptedExitCode) << stopped.err;
  EXPECT_EQ(count_lines_with(stopped.out, "preempted: saved "), 1) << stopped.out;
  EXPECT_TRUE(logged(file("out/checkpoint-10"), "eval_loss").empty());
  const Finished resumed = run_job(words() + more + Words{"100"}, 2);
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(logged(file("out/checkpoint-10"), "eval_loss").size(), 1U);
  EXPECT_EQ(logged(file("out/checkpoint-10"), "loss").size(), 10U);
}

}  // namespace
}  // namespace lockstep::testing
