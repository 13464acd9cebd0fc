// Fine-tuning on conversations, from the command line to the files that it writes.

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_folder.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "support/tiny_models.hpp"
#include "text_trainer.hpp"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

class Sft : public TextTrainer {
 protected:
  Sft() {
    write_tiny_gpt2(file("model"));
    fs::copy_file(std::string(LOCKSTEP_TOKENIZER_DIR) + "/roberta.json", file("model/tokenizer.json"));
    std::ifstream golden(LOCKSTEP_CHAT_DATA_GOLDEN);
    data_ = nlohmann::ordered_json::parse(golden);
    for (const char* name : {"tokenizer_config.json", "chat_template.jinja"}) {
      write(std::string("model/") + name, data_["files"][name].get<std::string>());
    }
    std::string lines;
    for (const auto& row : data_["rows"]["messages"]) lines += row.dump() + "\n";
    train_file_ = write("chats.jsonl", lines);
  }

  Words words(const std::string& flags) const {
    return Words{LOCKSTEP_SFT} + common() + Words{"--train-file", train_file_} +
           split("--learning-rate 1e-3 --logging-steps 1 --per-device-train-batch-size 5 " + flags);
  }

  void expect_losses_of_trl(const std::string& name, const std::string& flags) const {
    const Finished job =
        run_alone(words("--max-steps 10 --save-steps 10 " + flags) + Words{"--output-dir", file(name)});
    ASSERT_EQ(job.status, 0) << job.err;
    const auto losses = logged(file(name) + "/checkpoint-10", "loss");
    const auto expected = data_["losses"][name].get<std::vector<double>>();
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], 1e-4) << "step " << i + 1;
  }

  nlohmann::ordered_json data_;
  std::string train_file_;
};

TEST_F(Sft, HasTheLossesOfTrl) {
  expect_losses_of_trl("all", "");
  expect_losses_of_trl("assistant_only", "--assistant-only-loss");
}

TEST_F(Sft, HasTheLearningRateOfTrl) {
  const Finished help = run_alone({LOCKSTEP_SFT, "--help"});
  EXPECT_TRUE(contains_all(help.out, {"default: 2e-05]"})) << help.out;
}

TEST_F(Sft, PacksOnTwoRanksAndWritesAModelThatCanBeUsedAgain) {
  const auto flags = words(
      "--packing --assistant-only-loss --max-steps 2 --save-strategy no --per-device-train-batch-size 2");
  const Finished job =
      run_job(flags + Words{"--output-dir", file("out"), "--validation-file", train_file_}, 2);
  ASSERT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.out, "perplexity "), 1) << job.out;
  for (const char* name :
       {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    EXPECT_TRUE(fs::exists(file("out/") + name)) << name;
  const Finished again = run_alone(flags + Words{"--model", file("out"), "--output-dir", file("two")});
  EXPECT_EQ(again.status, 0) << again.err;
}

/// Texts of a packed row do not see each other (huggingface/trl 1230): the first loss, of all rows in one
/// batch, is the one of the rows alone.
TEST_F(Sft, PackedTextsHaveTheLossesOfTheTextsAlone) {
  std::string lines;
  for (const char* text : {"Who is there?", "A citizen.", "Speak, speak!", "All resolved", "No more talking"})
    lines += nlohmann::json{{"text", text}}.dump() + "\n";
  write("short.jsonl", lines);
  const auto first_loss = [&](const std::string& name, const std::string& flags) {
    const Finished job = run_alone(words("--max-steps 1 --save-steps 1 --max-length 32 " + flags) +
                                   Words{"--train-file", file("short.jsonl"), "--output-dir", file(name)});
    EXPECT_EQ(job.status, 0) << job.err;
    EXPECT_TRUE(contains_all(job.out, {flags.empty() ? "training on 5 samples" : "training on 2 samples"}))
        << job.out;
    return logged(file(name) + "/checkpoint-1", "loss").at(0);
  };
  EXPECT_NEAR(first_loss("packed", "--packing"), first_loss("alone", ""), 1e-5);
}

TEST_F(Sft, TrainsAnAdapterOnTwoRanksAndContinuesIt) {
  const auto flags = words("--max-steps 2 --save-strategy no --per-device-train-batch-size 2");
  const Finished job = run_job(flags + split("--lora-r 4") + Words{"--output-dir", file("adapter")}, 2);
  ASSERT_EQ(job.status, 0) << job.err;
  for (const char* name :
       {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "chat_template.jinja"})
    EXPECT_TRUE(fs::exists(file("adapter/") + name)) << name;
  EXPECT_FALSE(fs::exists(file("adapter/model.safetensors")));
  const Finished again =
      run_alone(flags + Words{"--adapter", file("adapter"), "--output-dir", file("again")});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_TRUE(fs::exists(file("again/adapter_model.safetensors")));
  expect_refusal(flags + Words{"--adapter", file("adapter"), "--lora-r", "4", "--output-dir", file("two")}, 2,
                 {"--lora-r", "--adapter"});
}

/// With steps so large that every text changes.
TEST_F(Sft, WritesAnAdapterThatBatchInferenceTakes) {
  const Finished job = run_alone(words("--max-steps 2 --save-strategy no --learning-rate 1 --lora-r 4") +
                                 Words{"--output-dir", file("adapter")});
  ASSERT_EQ(job.status, 0) << job.err;
  write("rows.jsonl", R"({"text": "Who is there?"})"
                      "\n");
  const auto texts = [&](const std::string& name, const Words& more, const char* model) {
    const Finished done =
        run_alone(Words{LOCKSTEP_INFERENCE, "--model", file(model), "--data", file("rows.jsonl"), "--output",
                        file(name)} +
                  Words{"--cache-dir", file("answers")} +
                  split("--device cpu --no-progress --task text-generation --max-new-tokens 8") + more);
    EXPECT_EQ(done.status, 0) << done.err;
    return launch::read_file(file(name));
  };
  const auto base = texts("base.jsonl", {}, "model");
  EXPECT_NE(texts("adapted.jsonl", Words{"--adapter", file("adapter")}, "model"), base);
  EXPECT_EQ(texts("again.jsonl", Words{"--tokenizer", file("adapter")}, "model"), base);
}

/// QLoRA: the adapter of a quantized Llama, fully sharded as well, trained further and resumed.
TEST_F(Sft, TrainsTheAdapterOfAQuantizedModel) {
  write_tiny_llama(file("model"));
  const auto flags = words(
      "--quantization nf4 --learning-rate 2e-2 --max-steps 4 --save-steps 2 --per-device-train-batch-size 2");
  const auto trained = [&](const std::string& name, const Words& more, int ranks) {
    const Finished job = run_job(flags + more + Words{"--output-dir", file(name)}, ranks);
    EXPECT_EQ(job.status, 0) << job.err;
    EXPECT_FALSE(fs::exists(file(name + "/model.safetensors")));
    return logged(file(name) + "/checkpoint-4", "loss");
  };
  const auto new_adapter = split("--lora-r 4 --lora-alpha 8 --lora-target-modules all-linear");
  const auto two = trained("two", new_adapter, 2);
  ASSERT_EQ(two.size(), 4U);
  EXPECT_LT(two.back(), two.front());
  EXPECT_EQ(trained("fsdp", new_adapter + split("--fsdp full_shard --max-grad-norm 0"), 2),
            trained("ddp", new_adapter + split("--max-grad-norm 0"), 2));
  const auto one = trained("one", new_adapter + split("--per-device-train-batch-size 4"), 1);
  EXPECT_NEAR(one.front(), two.front(), 1e-4);
  fs::remove_all(file("two/checkpoint-4"));
  EXPECT_EQ(trained("two", new_adapter, 2), two);
  trained("further", Words{"--adapter", file("two")}, 1);
}

/// The tokens that align_special_tokens of transformers 5.24 gives these configurations for this tokenizer,
/// whose <s> is 0, <pad> 1 and </s> 2.
TEST_F(Sft, GivesTheModelTheSpecialTokensOfItsTokenizer) {
  const auto cases = nlohmann::ordered_json::parse(R"([
    {"config": [4, 0, 1], "generation": null, "config_after": [2, 0, 1], "generation_after": [[2, 4], 0, 1]},
    {"config": [[4, 3], 0, 1], "generation": [[4, 3], 0, 1],
     "config_after": [[2, 4, 3], 0, 1], "generation_after": [[2, 4, 3], 0, 1]},
    {"config": [4, 3, null], "generation": [[3, 2], 3, null],
     "config_after": [2, 0, 1], "generation_after": [[2, 3], 0, 1]},
    {"config": [2, 0, 1], "generation": [null, 0, 1],
     "config_after": [2, 0, 1], "generation_after": [[2], 0, 1]},
    {"config": [2, 0, 1], "generation": [2, 0, 1],
     "config_after": [2, 0, 1], "generation_after": [2, 0, 1]}])");
  const auto tokens_in = [](const std::string& path) {
    const auto fields = nlohmann::ordered_json::parse(launch::read_file(path));
    auto tokens = nlohmann::ordered_json::array();
    for (const char* name : {"eos_token_id", "bos_token_id", "pad_token_id"})
      tokens.push_back(fields.value(name, nlohmann::ordered_json()));
    return tokens;
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.dump());
    const auto fields_of = [](const nlohmann::ordered_json& tokens) {
      return nlohmann::ordered_json{
          {"eos_token_id", tokens[0]}, {"bos_token_id", tokens[1]}, {"pad_token_id", tokens[2]}};
    };
    const auto before = fields_of(each["config"]);
    for (const auto& [name, value] : before.items()) set_in_config(name, value);
    fs::remove(file("model/generation_config.json"));
    if (!each["generation"].is_null())
      write("model/generation_config.json", fields_of(each["generation"]).dump());
    fs::remove_all(file("out"));
    const Finished job =
        run_alone(words("--max-steps 1 --save-strategy no") + Words{"--output-dir", file("out")});
    ASSERT_EQ(job.status, 0) << job.err;
    EXPECT_EQ(tokens_in(file("out/config.json")), each["config_after"]);
    EXPECT_EQ(tokens_in(file("out/generation_config.json")), each["generation_after"]);
    const bool changes =
        each["config"] != each["config_after"] || each["generation"] != each["generation_after"];
    EXPECT_EQ(count_lines_with(job.out, "the tokenizer's special tokens"), changes ? 1 : 0) << job.out;
  }
}

TEST_F(Sft, TakesAnotherTokenForTheEndOfTexts) {
  const auto flags = words("--max-steps 1 --save-strategy no --eos-token") + Words{"<unk>"};
  const Finished job = run_alone(flags + Words{"--output-dir", file("out")});
  ASSERT_EQ(job.status, 0) << job.err;
  const auto field = [&](const std::string& name, const char* key) {
    return nlohmann::json::parse(launch::read_file(file(name))).at(key);
  };
  EXPECT_EQ(field("out/tokenizer_config.json", "eos_token"), "<unk>");
  EXPECT_EQ(field("out/config.json", "eos_token_id"), 3);
  EXPECT_EQ(field("out/generation_config.json", "eos_token_id"), nlohmann::json({3, 402}));
  expect_refusal(words("--eos-token <none>"), 2, {"--eos-token '<none>'", "model"});
  const Finished adapter = run_alone(words("--max-steps 1 --save-strategy no --lora-r 2") +
                                     Words{"--output-dir", file("adapter")});
  ASSERT_EQ(adapter.status, 0) << adapter.err;
  EXPECT_EQ(count_lines_with(adapter.out, "generation_config.json"), 1) << adapter.out;
}

/// Makes the checkpoint one of a version that did not keep what a training began from.
void forget_base_model(const std::string& checkpoint) {
  const std::string kept = checkpoint + ".kept";
  const CheckpointInfo info = verify_checkpoint(checkpoint).info;
  fs::rename(checkpoint, kept);
  write_checkpoint(checkpoint, info, [&](const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(kept)) {
      if (entry.path().filename() != kManifestFileName)
        fs::copy_file(entry.path(), folder / entry.path().filename());
    }
    const fs::path file = folder / "trainer_state.json";
    auto state = nlohmann::ordered_json::parse(launch::read_file(file.string()));
    EXPECT_EQ(state.at("stateful_callbacks").erase("BaseModelCallback"), 1U);
    std::ofstream(file, std::ios::trunc) << state.dump();
    return FileDigests();
  });
  fs::remove_all(kept);
}

/// The checkpoint's weights would get the other model's configuration.
TEST_F(Sft, ResumesOnlyWithTheModelThatItBeganWith) {
  const Words out{"--output-dir", file("out")};
  const auto flags = words("--max-steps 1 --save-steps 1");
  ASSERT_EQ(run_alone(flags + out).status, 0);
  fs::rename(file("model"), file("moved"));
  const Words moved{"--model", file("moved")};
  const Finished again = run_alone(flags + out + moved);
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(count_lines_with(again.out, "already finished"), 1) << again.out;
  const auto expect_other = [&](std::initializer_list<std::string_view> parts) {
    const Finished other = run_alone(flags + out + moved);
    EXPECT_NE(other.status, 0) << other.out;
    EXPECT_TRUE(contains_all(other.err, parts)) << other.err;
    EXPECT_TRUE(contains_all(other.err, {file("model"), file("moved"), "is another model"})) << other.err;
  };
  const auto text = launch::read_file(file("moved/config.json"));
  auto config = nlohmann::json::parse(text);
  config["layer_norm_epsilon"] = 0.01;
  write("moved/config.json", config.dump());
  expect_other({"layer_norm_epsilon was null, is 0.01"});
  write("moved/config.json", text);
  std::fstream weights(file("moved/model.safetensors"), std::ios::in | std::ios::out | std::ios::binary);
  weights.seekp(-3, std::ios::end).put('\x11');
  weights.close();
  expect_other({"model.safetensors has other weights"});
  forget_base_model(file("out/checkpoint-1"));
  const Finished older = run_alone(flags + out + moved);
  EXPECT_EQ(older.status, 0) << older.err;
  EXPECT_EQ(count_lines_with(older.out, "already finished"), 1) << older.out;
}

TEST_F(Sft, SaysThatTheEndOfAnswersIsNotTrained) {
  const Words others{"--output-dir", file("out")};
  const auto flags = words("--assistant-only-loss --max-steps 1 --save-strategy no") + others;
  EXPECT_EQ(count_lines_with(run_alone(flags).out, "may not learn to stop"), 0);
  write("model/chat_template.jinja",
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content or '-' }}{% "
        "endgeneration %}"
        "{{ eos_token }}{% else %}{{ m.content }}{% endif %}{% endfor %}");
  const Finished job = run_alone(flags);
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.out, "may not learn to stop"), 1) << job.out;
}

TEST_F(Sft, SaysThatPromptsEndWithinTokens) {
  std::string rows;
  for (int i = 0; i < 4; ++i)
    rows += R"({"prompt": "hel", "completion": "lo world"})"
            "\n";
  const Words others{"--train-file", write("pairs.jsonl", rows), "--output-dir", file("out")};
  const Finished job = run_alone(words("--max-steps 1 --save-strategy no") + others);
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "row 0: the tokens of the prompt alone end in 'l'"), 1) << job.err;
}

TEST_F(Sft, RefusesWhatItCannotTrainOn) {
  write("model/chat_template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  const Words out{"--output-dir", file("out")};
  expect_refusal(words("--assistant-only-loss") + out, 2, {"{% generation %}", "chat_template.jinja"});
  expect_refusal(words("--max-length 33") + out, 2, {"--max-length 33", "32 tokens"});
  expect_refusal(words("--completion-only-loss true") + out, 2, {"completion_only_loss", "'prompt'"});
}

/// Before the data are read. A value in a configuration file counts if it is not the default; a strategy that
/// the file states with its default decides, as it does on the command line.
TEST_F(Sft, RefusesOptionsThatHaveNoEffect) {
  const auto none = [&](const std::string& flags) {
    return words(flags) + Words{"--train-file", file("none.jsonl"), "--output-dir", file("out")};
  };
  for (const std::string flag : {"--lora-target-modules c_attn", "--lora-alpha 16", "--lora-dropout 0.1"})
    expect_refusal(none(flag), 2, {flag.substr(0, flag.find(' ')), "only with --lora-r"});
  expect_refusal(none("--adapter none --lora-alpha 32"), 2, {"--lora-alpha", "for a new adapter"});
  expect_refusal(none("--quantization nf4"), 2, {"--quantization", "--lora-r or --adapter"});
  expect_refusal(none("--packing-strategy bfd"), 2, {"--packing-strategy", "with --packing"});
  expect_refusal(none("--packing --truncation-mode keep_end"), 2, {"--truncation-mode", "without --packing"});
  expect_refusal(none("--eval-steps 5"), 2, {"--eval-steps", "--eval-strategy steps"});
  expect_refusal(none("--optim sgd --adam-beta1 0.5"), 2, {"--adam-beta1", "--optim adam"});
  expect_refusal(none("--save-steps 5 --save-strategy no"), 2, {"--train-file", "none.jsonl"});
  expect_refusal(none("--fsdp-config {}"), 2, {"--fsdp-config", "with --fsdp"});
  expect_refusal(none("") + Words{"--config", write("some.json", R"({"lora_alpha": 32})")}, 2,
                 {"--lora-alpha", "--lora-r"});
  expect_refusal(none("") + Words{"--config", write("steps.json", R"({"eval_steps": 500})")}, 2,
                 {"--eval-steps", "--eval-strategy steps"});
  expect_refusal(
      none("") + Words{"--config", write("decided.json", R"({"eval_strategy": "no", "eval_steps": 500})")}, 2,
      {"--train-file", "none.jsonl"});
  expect_refusal(none("") + Words{"--config", write("usual.json", R"({"lora_alpha": 16, "lora_r": 0})")}, 2,
                 {"--train-file", "none.jsonl"});
}

}  // namespace
}  // namespace lockstep::testing
