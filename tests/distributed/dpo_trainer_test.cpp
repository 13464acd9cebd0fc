// Training on preferences, from the command line to the files that it writes.

#include <algorithm>
#include <cmath>
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

nlohmann::ordered_json json_file(const char* path) {
  std::ifstream file(path);
  return nlohmann::ordered_json::parse(file);
}

class Dpo : public TextTrainer {
 protected:
  Dpo() : data_(json_file(LOCKSTEP_DPO_GOLDEN)) {
    write_tiny_gpt2(file("model"));
    fs::copy_file(std::string(LOCKSTEP_TOKENIZER_DIR) + "/roberta.json", file("model/tokenizer.json"));
    const auto chats = json_file(LOCKSTEP_CHAT_DATA_GOLDEN);
    for (const char* name : {"tokenizer_config.json", "chat_template.jinja"})
      write(std::string("model/") + name, chats["files"][name].get<std::string>());
    train_file_ = write_rows("texts");
  }

  std::string write_rows(const std::string& name) const {
    std::string lines;
    for (const auto& row : data_["rows"][name]) lines += row.dump() + "\n";
    return write(name + ".jsonl", lines);
  }

  Words words(const std::string& flags) const {
    return Words{LOCKSTEP_DPO} + common() + Words{"--train-file", train_file_} +
           split("--learning-rate 1e-3 --logging-steps 1 --per-device-train-batch-size 4 " + flags);
  }

  /// What trl's DPOTrainer logs in each of ten steps of a model without an adapter.
  void expect_values_of_trl(std::size_t run, const std::string& output) const {
    const auto& wanted = data_["runs"][run];
    ASSERT_EQ(wanted["kind"], "full");
    for (const char* name : {"loss", "rewards/chosen", "rewards/rejected", "rewards/accuracies",
                             "rewards/margins", "logps/chosen", "logps/rejected"}) {
      const auto expected = wanted[name].get<std::vector<double>>();
      const auto values = logged(file(output) + "/checkpoint-10", name);
      ASSERT_EQ(values.size(), expected.size()) << name;
      for (std::size_t i = 0; i < values.size(); ++i) {
        // Of rewards that are equal, rounding decides which is higher.
        if (name == std::string("rewards/accuracies") && wanted["rewards/margins"][i] == 0.0) continue;
        EXPECT_NEAR(values[i], expected[i], 2e-4 * std::max(1.0, std::abs(expected[i])))
            << name << ", step " << i + 1;
      }
    }
  }

  nlohmann::ordered_json data_;
  std::string train_file_;
};

TEST_F(Dpo, HasTheValuesOfTrlOnOneRankAndOnTwo) {
  const Finished alone = run_alone(words("--max-steps 10 --save-steps 10 --loss-type ipo --beta 0.3") +
                                   Words{"--output-dir", file("ipo")});
  ASSERT_EQ(alone.status, 0) << alone.err;
  expect_values_of_trl(1, "ipo");
  EXPECT_GT(json_file((file("ipo") + "/checkpoint-10/trainer_state.json").c_str()).at("total_flos"), 0);
  const auto two_ranks = words("--max-steps 10 --save-steps 10 --per-device-train-batch-size 2");
  for (const Words& more : {Words{}, Words{"--precompute-ref-log-probs"}}) {
    const Finished job = run_job(two_ranks + more + Words{"--output-dir", file("two")}, 2);
    ASSERT_EQ(job.status, 0) << job.err;
    expect_values_of_trl(0, "two");
    fs::remove_all(file("two"));
  }
}

TEST_F(Dpo, EvaluatesOnConversationsAndWritesAModelThatCanBeUsedAgain) {
  const auto chats = write_rows("implicit_chats");
  const auto flags = words("--max-steps 2 --save-strategy no --eval-strategy epoch --beta 0.5") +
                     Words{"--train-file", chats, "--validation-file", chats};
  const Finished job = run_alone(flags + Words{"--output-dir", file("out")});
  ASSERT_EQ(job.status, 0) << job.err;
  EXPECT_TRUE(contains_all(job.out, {"training on 3 pairs", "eval_loss", "eval_rewards/accuracies 1",
                                     "eval_rewards/margins", "eval_logps/chosen"}))
      << job.out;
  for (const char* name :
       {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    EXPECT_TRUE(fs::exists(file("out/") + name)) << name;
  const Finished again = run_alone(flags + Words{"--model", file("out"), "--reference-model", file("model"),
                                                 "--chat-template-path", file("out/chat_template.jinja"),
                                                 "--output-dir", file("out")});
  ASSERT_EQ(again.status, 0) << again.err;
}

/// A run that was resumed logs what a whole one does; the checkpoint has the adapter alone.
TEST_F(Dpo, TrainsAnAdapterOnTwoRanksAndResumesIt) {
  const auto flags = words("--max-steps 6 --save-steps 3 --lora-r 4 --per-device-train-batch-size 2") +
                     Words{"--output-dir", file("adapter")};
  const Finished job = run_job(flags, 2);
  ASSERT_EQ(job.status, 0) << job.err;
  const auto saved = read_file(file("adapter/adapter_model.safetensors"));
  const auto losses = logged(file("adapter/checkpoint-6"), "loss");
  EXPECT_FALSE(fs::exists(file("adapter/checkpoint-3/model.safetensors")));
  EXPECT_FALSE(fs::exists(file("adapter/model.safetensors")));
  fs::remove_all(file("adapter/checkpoint-6"));
  fs::remove(file("adapter/adapter_model.safetensors"));
  const Finished resumed = run_job(flags, 2);
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(count_lines_with(resumed.out + resumed.err, "checkpoint-3"), 1) << resumed.out << resumed.err;
  EXPECT_EQ(logged(file("adapter/checkpoint-6"), "loss"), losses);
  EXPECT_TRUE(read_file(file("adapter/adapter_model.safetensors")) == saved);
}

/// A lost rank takes nothing of the logged rewards along, and its successor finds the reference's values.
TEST_F(Dpo, LosesRanksAndLogsTheSameRewards) {
  const auto start = [&](const std::string& name) {
    return start_job(words("--max-steps 90 --save-steps 90 --logging-steps 3 --report-to jsonl "
                           "--precompute-ref-log-probs --per-device-train-batch-size 2") +
                         Words{"--output-dir", file(name)},
                     2, {"--max-recoveries", "4"});
  };
  const Finished whole = start("whole")->wait();
  ASSERT_EQ(whole.status, 0) << whole.err;
  const auto job = start("lost");
  const auto has_logged = [&](std::size_t lines) {
    return [&, lines] { return lines_of(read_file(file("lost/runs/metrics.jsonl"))).size() > lines; };
  };
  kill_rank(1, file("lost"), has_logged(3));
  kill_rank(0, file("lost"), has_logged(12));
  const Finished lost = job->wait();
  ASSERT_EQ(lost.status, 0) << lost.err;
  EXPECT_EQ(count_lines_with(lost.err, "all ranks are there again after"), 2) << lost.err;
  for (const char* name : {"loss", "rewards/chosen", "rewards/rejected", "rewards/accuracies",
                           "rewards/margins", "logps/chosen"}) {
    EXPECT_EQ(logged(file("lost/checkpoint-90"), name).size(), 30U) << name;
    EXPECT_EQ(logged(file("lost/checkpoint-90"), name), logged(file("whole/checkpoint-90"), name)) << name;
  }
  EXPECT_TRUE(read_file(file("whole/model.safetensors")) == read_file(file("lost/model.safetensors")));
}

/// QLoRA: the reference is the quantized model without the adapter, precomputed or not.
TEST_F(Dpo, TrainsTheAdapterOfAQuantizedModel) {
  write_tiny_llama(file("model"));
  const auto flags = words("--quantization nf4 --lora-r 4 --max-steps 4 --save-steps 4");
  const auto values = [&](const std::string& more, int ranks, const std::string& name) {
    fs::remove_all(file("out"));
    const Finished job = run_job(flags + split(more) + Words{"--output-dir", file("out")}, ranks);
    EXPECT_EQ(job.status, 0) << job.err;
    return logged(file("out/checkpoint-4"), name);
  };
  const auto margins = values("", 1, "rewards/margins");
  ASSERT_EQ(margins.size(), 4U);
  EXPECT_NEAR(margins.front(), 0, 1e-4);
  EXPECT_GT(margins.back(), 1e-3);
  for (const char* more : {"--per-device-train-batch-size 2", "--precompute-ref-log-probs",
                           "--per-device-train-batch-size 2 --fsdp full_shard"}) {
    const auto found =
        values(more, std::string(more).find("size") == std::string::npos ? 1 : 2, "rewards/margins");
    ASSERT_EQ(found.size(), 4U) << more;
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], margins[i], 1e-3) << more << i;
  }
  const Finished further = run_alone(words("--quantization nf4 --max-steps 2 --save-strategy no") +
                                     Words{"--adapter", file("out"), "--output-dir", file("further")});
  EXPECT_EQ(further.status, 0) << further.err;
}

/// A second start loads and computes no reference, and has the values of one that does; another reference and
/// another precision are other results. A new build is one, too: no version of the computation is in the key.
TEST_F(Dpo, KeepsThePrecomputedReference) {
  const auto run = [&](const std::string& more) {
    const Finished job =
        run_job(words("--precompute-ref-log-probs --max-steps 1 --save-strategy no " + more) +
                    Words{"--output-dir", file("out")},
                2);
    EXPECT_EQ(job.status, 0) << job.err;
    return job;
  };
  const auto results = [&] {
    std::size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(file("cache"))) {
      if (entry.path().filename() != "manifest.json") continue;
      const std::string manifest = read_file(entry.path().string());
      if (manifest.find("reference_log_probs") == std::string::npos) continue;
      EXPECT_NE(manifest.find("library_build_id"), std::string::npos) << manifest;
      ++count;
    }
    return count;
  };
  run("");
  EXPECT_EQ(results(), 1U);
  run("--learning-rate 1e-4");
  EXPECT_EQ(results(), 1U);
  run("--precompute-ref-batch-size 3");
  EXPECT_EQ(results(), 2U);
  fs::copy(file("model"), file("reference"));
  run("--reference-model " + file("reference"));
  EXPECT_EQ(results(), 2U);
  auto config = json_file(file("reference/config.json").c_str());
  config["layer_norm_epsilon"] = 0.1;
  write("reference/config.json", config.dump());
  run("--reference-model " + file("reference"));
  EXPECT_EQ(results(), 3U);
  run("--full-determinism");
  EXPECT_EQ(results(), 4U);
  const auto margins = [&](const std::string& flags) {
    const Finished job =
        run_job(words("--max-steps 2 --save-steps 2 " + flags + " --reference-model " + file("reference")) +
                    Words{"--output-dir", file("margins")},
                2);
    EXPECT_EQ(job.status, 0) << job.err;
    const auto values = logged(file("margins/checkpoint-2"), "rewards/margins");
    fs::remove_all(file("margins"));
    return values;
  };
  const auto cached = margins("--precompute-ref-log-probs"), computed = margins("");
  EXPECT_EQ(results(), 4U);
  ASSERT_EQ(cached.size(), 2U);
  ASSERT_EQ(computed.size(), 2U);
  EXPECT_GT(std::abs(computed[0]), 1e-6);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(cached[i], computed[i], 1e-5) << i;
}

/// The reference of an adapter that is trained further is that adapter, not the model without it.
TEST_F(Dpo, StaysCloseToTheAdapterThatItContinues) {
  const auto flags = words("--max-steps 1 --save-steps 1 --learning-rate 0.05");
  const Finished first = run_alone(flags + split("--lora-r 4") + Words{"--output-dir", file("adapter")});
  ASSERT_EQ(first.status, 0) << first.err;
  for (const bool to_model : {false, true}) {
    auto again = flags + Words{"--adapter", file("adapter"), "--output-dir", file("again")};
    if (to_model) again = again + Words{"--reference-model", file("model")};
    const Finished job = run_alone(again);
    ASSERT_EQ(job.status, 0) << job.err;
    const auto margins = logged(file("again/checkpoint-1"), "rewards/margins");
    ASSERT_EQ(margins.size(), 1U);
    EXPECT_EQ(std::abs(margins[0]) < 1e-4, !to_model) << margins[0];
    fs::remove_all(file("again"));
  }
}

TEST_F(Dpo, RefusesWhatItCannotTrainOn) {
  expect_refusal(words("--max-length 33"), 2, {"--max-length 33", "32 tokens"});
  expect_refusal(words("--loss-type kto"), 2, {"--loss-type", "sigmoid", "ipo"});
  expect_refusal(words("--loss-type ipo --label-smoothing 0.1"), 2, {"label_smoothing", "sigmoid"});
  expect_refusal(words("--lora-r 4 --lora-dropout 0.1"), 2, {"--lora-dropout", "--no-disable-dropout"});
  // This prompt ends where a token ends, of which nothing is said.
  const auto pair = write("pair.jsonl", R"({"prompt": "All:", "chosen": " Resolved", "rejected": " No"})");
  expect_refusal(words("--label-smoothing-factor 0.1") + Words{"--train-file", pair}, 2,
                 {"label_smoothing_factor"});
  expect_refusal(words("") + Words{"--train-file", write("other.jsonl", "{\"text\": \"x\"}\n")}, 2,
                 {"'chosen' and 'rejected'", "it has 'text'"});
  expect_refusal(words("") + Words{"--chat-template-path", file("model")}, 1,
                 {"--chat-template-path", "not a file"});
  expect_refusal(words("") + Words{"--chat-template-path", write("empty.jinja", "")}, 1,
                 {"--chat-template-path", "is empty"});
}

/// Without the data, which would take long to tokenize.
TEST_F(Dpo, RefusesModelsThatDoNotFitBeforeItReadsData) {
  const auto none = [&](const std::string& flags) {
    return words(flags) + Words{"--train-file", file("none.jsonl"), "--reference-model", file("reference")};
  };
  auto config = json_file(file("model/config.json").c_str());
  fs::create_directories(file("reference"));
  config["n_positions"] = 16;
  write("reference/config.json", config.dump());
  expect_refusal(none(""), 2, {"--reference-model", "16 tokens", "--max-length 16"});
  config["vocab_size"] = 400;
  write("reference/config.json", config.dump());
  expect_refusal(none("--precompute-ref-log-probs"), 2, {"--reference-model", "400 tokens", "403"});
  expect_refusal(none("--lora-r 4 --adapter none"), 2, {"--lora-r", "--adapter", "only one"});
  expect_refusal(none("--adapter none --lora-target-modules c_attn"), 2,
                 {"--lora-target-modules", "with --lora-r"});
  expect_refusal(none("--precompute-ref-batch-size 2"), 2,
                 {"--precompute-ref-batch-size", "--precompute-ref-log-probs"});
}

}  // namespace
}  // namespace lockstep::testing
