// batch_inference with a small model per task: the same results on one rank and on two, reading results from
// files and from the cache, sampling, and errors.

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string_view>

#include "lockstep/datasets/arrow_dataset.hpp"
#include "support/tiny_models.hpp"
#include "text_trainer.hpp"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using launch::read_file;

const std::string kTokenizers = LOCKSTEP_TOKENIZER_DIR;
constexpr std::int64_t kRows = 40;
/// Rows at this distance have the same text.
constexpr std::int64_t kPeriod = kRows / 2;
/// Enough that the small model does not give all rows the same class.
constexpr int kClasses = 64;
constexpr std::size_t kWidth = 32;

/// Rows of results as JSON.
using Lines = std::vector<nlohmann::json>;

class InferenceTasks : public TextTrainer {
 protected:
  InferenceTasks() {
    write_tiny_bert(file("bert"), 160, kClasses);
    write_tiny_gpt2(file("gpt2"));
    write_tiny_bart(file("bart"));
    fs::copy_file(kTokenizers + "/bert.json", file("bert/tokenizer.json"));
    for (const char* folder : {"gpt2", "bart"})
      copy_generic_tokenizer(kTokenizers + "/roberta.json", file(folder));
    write("rows.jsonl", rows());
  }

  static std::string rows() {
    static const char* const subjects[] = {"citizen", "menenius", "people", "corn"};
    std::string lines;
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto kind = static_cast<std::size_t>(row % kPeriod);
      std::string text = kind % 2 == 0 ? "what is the " : "speak, ";
      text += subjects[kind / 2 % 4] + std::string(kind % 5, '!');
      lines += nlohmann::json{{"number", row}, {"text", text}}.dump() + "\n";
    }
    return lines;
  }

  /// The default model of a task.
  std::string model_for(const std::string& task) const {
    if (task == "text-generation") return file("gpt2");
    return file(task == "translation" ? "bart" : "bert");
  }

  /// Writes `output`, with a separate cache. The rows are three shards, which the workers share.
  Words words(const std::string& task, const std::string& output) const {
    return Words{LOCKSTEP_INFERENCE, "--task", task, "--model", model_for(task)} +
           Words{"--data", file("rows.jsonl"), "--output", file(output)} +
           Words{"--cache-dir", file(output + ".cache")} +
           split("--device cpu --no-progress --batch-size 2 --max-length 16") +
           (task == "text-generation" || task == "translation" ? split("--max-new-tokens 8") : Words());
  }

  /// The bytes written by such a run on `ranks` ranks.
  std::string results(const std::string& task, const std::string& output, int ranks,
                      const Words& more = {}) const {
    const Finished job = run_job(words(task, output) + more, ranks);
    EXPECT_EQ(job.status, 0) << job.err;
    return fs::exists(file(output)) ? read_file(file(output)) : "";
  }

  /// The results as lines of JSON, which must have the same bytes on one rank and on two.
  Lines lines_of_task(const std::string& task, const Words& more = {}) const {
    const std::string one = results(task, "one.jsonl", 1, more);
    EXPECT_TRUE(one == results(task, "two.jsonl", 2, more)) << task << ": one rank wrote\n" << one;
    Lines lines;
    for (const auto& line : lines_of(one)) lines.push_back(nlohmann::json::parse(line));
    EXPECT_EQ(lines.size(), static_cast<std::size_t>(kRows));
    return lines;
  }

  /// The same as an Arrow file.
  ArrowDataset table_of_task(const std::string& task) const {
    const std::string one = results(task, "one.arrow", 1);
    EXPECT_TRUE(one == results(task, "two.arrow", 2)) << task;
    return ArrowDataset::load(file("one.arrow"));
  }

  /// Expects both to have the rows of the source, in order.
  void expect_source_rows(const Lines& lines, const ArrowDataset& table) const {
    ASSERT_EQ(table.num_rows(), kRows);
    ASSERT_EQ(std::ssize(lines), kRows);
    const auto numbers = table.column<std::int64_t>("number");
    const auto texts = table.column<std::string_view>("text");
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto& line = lines[static_cast<std::size_t>(row)];
      EXPECT_EQ(numbers[row], row);
      EXPECT_EQ(line.at("number").get<std::int64_t>(), row);
      EXPECT_EQ(line.at("text").get<std::string>(), texts[row]);
    }
  }

  /// When each shard of the results was written.
  std::map<std::string, fs::file_time_type> parts(const std::string& cache) const {
    std::map<std::string, fs::file_time_type> times;
    for (const auto& entry : fs::recursive_directory_iterator(file(cache))) {
      if (entry.path().filename().string().starts_with("shard-"))
        times[entry.path().string()] = entry.last_write_time();
    }
    return times;
  }

  /// Expects exit code `status` and one line of error with these parts, before anything is computed.
  void expect_refused(const std::string& task, const Words& more, int status,
                      std::initializer_list<std::string_view> parts) const {
    const Finished alone = run_alone(words(task, "refused.jsonl") + more);
    EXPECT_EQ(alone.status, status) << alone.err;
    EXPECT_EQ(lines_of(alone.err).size(), 1U) << alone.err;
    EXPECT_TRUE(contains_all(alone.err, parts));
    EXPECT_FALSE(fs::exists(file("refused.jsonl")));
    EXPECT_FALSE(fs::exists(file("refused.jsonl.cache")));
  }
};

std::vector<std::string> texts_in(const Lines& lines) {
  std::vector<std::string> texts;
  for (const auto& line : lines) texts.push_back(line.at("generated_text").get<std::string>());
  return texts;
}

/// Number of rows whose result differs from that of the row with the same source text.
int differing_twins(const Lines& lines) {
  const auto texts = texts_in(lines);
  int count = 0;
  for (std::size_t row = static_cast<std::size_t>(kPeriod); row < texts.size(); ++row)
    count += texts[row] == texts[row - static_cast<std::size_t>(kPeriod)] ? 0 : 1;
  return count;
}

TEST_F(InferenceTasks, FeatureExtractionGivesVectorsOfLengthOne) {
  const Lines lines = lines_of_task("feature-extraction");
  const ArrowDataset table = table_of_task("feature-extraction");
  ASSERT_NO_FATAL_FAILURE(expect_source_rows(lines, table));
  const auto vectors = table.column<std::span<const float>>("embedding");
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto line = lines[static_cast<std::size_t>(row)].at("embedding").get<std::vector<float>>();
    const auto vector = vectors[row];
    ASSERT_EQ(vector.size(), kWidth);
    ASSERT_EQ(line.size(), kWidth);
    double squares = 0;
    for (std::size_t i = 0; i < kWidth; ++i) {
      EXPECT_FLOAT_EQ(vector[i], line[i]) << "row " << row << ", place " << i;
      squares += static_cast<double>(vector[i]) * static_cast<double>(vector[i]);
    }
    EXPECT_NEAR(squares, 1, 1e-5) << "row " << row;
  }
  // Different texts have different vectors.
  EXPECT_FALSE(lines[0].at("embedding") == lines[1].at("embedding"));
}

/// The pooling and the normalization of the folder; embeddings_test compares them with sentence-transformers.
TEST_F(InferenceTasks, FeatureExtractionPoolsAsASentenceEncoderSays) {
  const std::string folder = file("sentences");
  fs::copy(file("bert"), folder, fs::copy_options::recursive);
  fs::create_directories(folder + "/1_Pooling");
  const auto modules = [](const std::vector<std::string>& kinds) {
    auto list = nlohmann::json::array();
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      list.push_back({{"idx", i},
                      {"name", std::to_string(i)},
                      {"path", i == 0 ? "" : std::to_string(i) + "_" + kinds[i]},
                      {"type", "sentence_transformers.models." + kinds[i]}});
    }
    return list.dump();
  };
  const auto pooling = [&](const std::string& mode) {
    write("sentences/1_Pooling/config.json",
          nlohmann::json{{"word_embedding_dimension", kWidth}, {"pooling_mode_" + mode, true}}.dump());
  };
  write("sentences/modules.json", modules({"Transformer", "Pooling", "Normalize"}));
  pooling("mean_tokens");
  EXPECT_EQ(lines_of_task("feature-extraction", {"--model", folder}), lines_of_task("feature-extraction"));
  write("sentences/modules.json", modules({"Transformer", "Pooling"}));
  pooling("cls_token");
  const Lines first = lines_of_task("feature-extraction", {"--model", folder});
  const auto vector = first[0].at("embedding").get<std::vector<double>>();
  EXPECT_GT(std::abs(std::inner_product(vector.begin(), vector.end(), vector.begin(), 0.0) - 1), 0.01);
  write("sentences/sentence_bert_config.json", R"({"max_seq_length": 16, "do_lower_case": true})");
  const std::string lower = file("sentences/tokenizer.json");
  auto tokens = nlohmann::json::parse(read_file(lower));
  tokens["normalizer"]["lowercase"] = false;
  write("sentences/tokenizer.json", tokens.dump());
  write("sentences/tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false})");
  expect_refused("feature-extraction", {"--model", folder}, 1,
                 {"do_lower_case", "keeps capitals", "Lowercase"});
}

TEST_F(InferenceTasks, TextClassificationGivesNumbersOfClasses) {
  const Lines lines = lines_of_task("text-classification");
  const ArrowDataset table = table_of_task("text-classification");
  ASSERT_NO_FATAL_FAILURE(expect_source_rows(lines, table));
  const auto labels = table.column<std::int64_t>("label");
  std::set<std::int64_t> different;
  for (std::int64_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(labels[row], lines[static_cast<std::size_t>(row)].at("label").get<std::int64_t>());
    EXPECT_GE(labels[row], 0);
    EXPECT_LT(labels[row], kClasses);
    different.insert(labels[row]);
  }
  EXPECT_GT(different.size(), 1U);
}

/// The names in config.json, in its order of classes.
TEST_F(InferenceTasks, TextClassificationGivesTheModelsNames) {
  const Lines numbers = lines_of_task("text-classification");
  nlohmann::json names;
  for (int label = 0; label < kClasses; ++label)
    names[std::to_string(label)] = "name " + std::to_string(label);
  auto config = nlohmann::json::parse(read_file(file("bert/config.json")));
  config["id2label"] = names;
  write("bert/config.json", config.dump());
  const Lines lines = lines_of_task("text-classification", {"--batch-size", "3"});
  ASSERT_EQ(lines.size(), numbers.size());
  for (std::size_t row = 0; row < lines.size(); ++row) {
    EXPECT_EQ(lines[row].at("label").get<std::string>(),
              "name " + std::to_string(numbers[row].at("label").get<int>()));
  }
}

TEST_F(InferenceTasks, TextGenerationContinuesEachTextTheSameWay) {
  const Lines lines = lines_of_task("text-generation");
  EXPECT_EQ(differing_twins(lines), 0);
  EXPECT_NE(texts_in(lines), std::vector<std::string>(static_cast<std::size_t>(kRows)));
}

/// As transformers' pipeline: it begins with the model's first token.
TEST_F(InferenceTasks, TextGenerationBeginsATextWhereThereIsNone) {
  write("rows.jsonl", "{\"text\": \"\"}\n");
  EXPECT_TRUE(contains_all(results("text-generation", "one.jsonl", 1), {"generated_text"}));
}

TEST_F(InferenceTasks, TranslationFollowsBeams) {
  const Lines lines = lines_of_task("translation", split("--num-beams 2 --output-column german"));
  for (const auto& line : lines) EXPECT_TRUE(line.at("german").is_string()) << line;
}

TEST_F(InferenceTasks, AnswersFromTheCacheWhatItHasComputed) {
  const std::string first = results("text-generation", "first.jsonl", 2);
  const auto before = parts("first.jsonl.cache");
  ASSERT_FALSE(before.empty());
  const std::string again =
      results("text-generation", "again.jsonl", 1, {"--cache-dir", file("first.jsonl.cache")});
  EXPECT_FALSE(again.empty());
  EXPECT_TRUE(again == first);
  EXPECT_EQ(parts("first.jsonl.cache"), before);
}

TEST_F(InferenceTasks, DrawsDependOnTheSeedAndTheRowAlone) {
  const Words draws = split("--do-sample --temperature 1.5 --top-k 100 --top-p 0.95 --seed 7");
  const Lines lines = lines_of_task("text-generation", draws);
  EXPECT_GT(differing_twins(lines), 0);
  const std::string one = read_file(file("one.jsonl"));
  const Words otherwise_dealt = split("--num-proc 3 --batch-size 4");
  EXPECT_TRUE(one == results("text-generation", "dealt.jsonl", 1, draws + otherwise_dealt));
  // The seed is part of the cache key.
  const Words other_seed{"--seed", "8", "--cache-dir", file("one.jsonl.cache")};
  const std::string other = results("text-generation", "other.jsonl", 1, draws + other_seed);
  EXPECT_FALSE(other.empty());
  EXPECT_FALSE(one == other);
}

TEST_F(InferenceTasks, DrawingAmongOneTokenTakesTheBest) {
  const std::string greedy = results("text-generation", "greedy.jsonl", 1);
  EXPECT_FALSE(greedy.empty());
  EXPECT_TRUE(greedy == results("text-generation", "drawn.jsonl", 1, split("--do-sample --top-k 1")));
}

/// Texts of different lengths pass through the model together.
TEST_F(InferenceTasks, ABatchGivesEachTextWhatItGetsAlone) {
  std::string lines = "{\"text\": \"\"}\n";
  for (int row = 0; row < 9; ++row)
    lines +=
        nlohmann::json{{"text", "speak" + std::string(static_cast<std::size_t>(row * 5 % 9), '!')}}.dump() +
        "\n";
  write("rows.jsonl", lines);
  for (const char* task : {"text-generation", "translation"}) {
    const std::string folder = std::string(task) == "translation" ? "bart" : "gpt2";
    for (const char* settings :
         {R"({"eos_token_id": 2, "decoder_start_token_id": 2})",
          R"({"eos_token_id": [2, 30, 31, 32], "no_repeat_ngram_size": 2, "num_beams": 3,
                                     "decoder_start_token_id": 2, "min_new_tokens": 2, "repetition_penalty": 1.3})"}) {
      write(folder + "/generation_config.json", settings);
      const std::string alone = results(task, "alone.jsonl", 1, {"--batch-size", "1"});
      EXPECT_EQ(lines_of(alone).size(), 10U);
      for (const char* size : {"4", "32"})
        EXPECT_TRUE(alone == results(task, "together.jsonl", 1, {"--batch-size", size})) << task << settings;
    }
  }
}

TEST_F(InferenceTasks, FollowsTheSettingsOfTheModelsFolder) {
  const auto write_settings = [&](const char* settings) { write("gpt2/generation_config.json", settings); };
  const auto written = [&](const Words& more) { return results("text-generation", "out.jsonl", 1, more); };
  write_settings("{}");
  const std::string greedy = written({}), beams = written(split("--num-beams 3"));
  const Words draws = split("--temperature 1.5 --top-k 100 --seed 7");
  const std::string drawn = written(draws + Words{"--do-sample"});
  EXPECT_FALSE(greedy == beams || greedy == drawn);
  write_settings(R"({"num_beams": 3, "max_new_tokens": 2, "num_return_sequences": 2})");
  EXPECT_TRUE(beams == written({})) << "an option outweighs max_new_tokens";
  EXPECT_TRUE(greedy == written(split("--num-beams 1")));
  write_settings(R"({"do_sample": true, "temperature": 1.5, "top_k": 100})");
  EXPECT_TRUE(drawn == written(split("--seed 7")));
  EXPECT_TRUE(drawn == written(draws));
  EXPECT_TRUE(greedy == written(split("--no-do-sample")));
  write_settings(R"({"penalty_alpha": 0.6, "top_k": 4})");
  expect_refused("text-generation", {}, 1, {"gpt2/generation_config.json", "'penalty_alpha' is 0.6"});
  write_settings(R"({"bad_words_ids": [[100000]]})");
  expect_refused("text-generation", {}, 1, {"gpt2/generation_config.json", "'bad_words_ids'", "100000"});
  write_settings(R"({"top_p": 1.5})");
  expect_refused("text-generation", {}, 1, {"gpt2/generation_config.json", "'top_p' is 1.5"});
}

TEST_F(InferenceTasks, RefusesDataThatItCannotRead) {
  expect_refused("feature-extraction", {"--column", "body"}, 2, {"--column", "'body'", "'number', 'text'"});
  expect_refused("feature-extraction", {"--data", write("empty.jsonl", "")}, 1,
                 {"empty.jsonl", "has no rows"});
  expect_refused("feature-extraction", {"--data", write("header.csv", "text,number\n")}, 1,
                 {"--data", "header.csv", "has no rows"});
  expect_refused("feature-extraction", {"--data", file("none.csv")}, 1, {"none.csv", "No such file"});
  const std::string holes = write("holes.csv", "text,number\nwhat,1\n,2\n,3\n");
  expect_refused("feature-extraction", {"--data", holes}, 1,
                 {"--column", "'text'", "no text in 2 of 3 rows", "the first is row 1"});
  expect_refused("feature-extraction", {"--column", "number"}, 2, {"--column", "'number'", "int64", "text"});
}

TEST_F(InferenceTasks, RefusesModelsThatDoNotFitTheTask) {
  const std::string program = write("net.pt", "no matter what");
  expect_refused("text-generation", {"--model", file("bert")}, 1, {"bert/config.json", "\"bert\"", "'gpt2'"});
  expect_refused("translation", {"--model", file("gpt2")}, 1, {"gpt2/config.json", "\"gpt2\"", "'bart'"});
  expect_refused("text-classification", {"--model", file("bart")}, 1,
                 {"bart/config.json", "\"bart\"", "'bert'"});
  expect_refused("feature-extraction", {"--tokenizer", kTokenizers + "/roberta.json"}, 1,
                 {"roberta.json", "403 tokens", file("bert"), "160", "do not belong together"});
  expect_refused("text-generation", {"--model", program}, 2, {"net.pt", "text-generation", "config.json"});
  expect_refused("feature-extraction", {"--model", program}, 2, {"net.pt", "--tokenizer"});
}

/// A classifier that is missing in the files would differ between workers.
TEST_F(InferenceTasks, RefusesAModelThatWasNotTrainedToClassify) {
  write_tiny_bert(file("bare"), 160);
  fs::copy_file(kTokenizers + "/bert.json", file("bare/tokenizer.json"));
  const Finished alone =
      run_alone(words("text-classification", "bare.jsonl") + Words{"--model", file("bare")});
  EXPECT_EQ(alone.status, 1) << alone.err;
  EXPECT_EQ(lines_of(alone.err).size(), 1U) << alone.err;
  EXPECT_TRUE(contains_all(alone.err, {file("bare"), "'classifier.weight'", "text-classification"}));
  EXPECT_FALSE(fs::exists(file("bare.jsonl")));
}

/// An adapter has the classifier, and not the layer before it.
TEST_F(InferenceTasks, AnAdapterDoesNotHideThatALayerIsMissing) {
  constexpr int kDefaultClasses = 2;
  write_tiny_bert_adapter(file("adapter"), kDefaultClasses);
  for (const std::string model : {"headless", "whole"}) {
    write_tiny_bert(file(model), 160, 0, /*has_pooler=*/model == "whole");
    fs::copy_file(kTokenizers + "/bert.json", file(model + "/tokenizer.json"));
    const Finished alone = run_alone(words("text-classification", model + ".jsonl") +
                                     Words{"--model", file(model)} + Words{"--adapter", file("adapter")});
    const bool is_missing = model == "headless";
    EXPECT_EQ(alone.status, is_missing ? 1 : 0) << alone.err;
    EXPECT_EQ(fs::exists(file(model + ".jsonl")), !is_missing);
    if (!is_missing) continue;
    EXPECT_EQ(lines_of(alone.err).size(), 1U) << alone.err;
    EXPECT_TRUE(contains_all(alone.err, {file(model), "'bert.pooler.dense.weight'", file("adapter"),
                                         "neither", "text-classification"}));
  }
}

TEST_F(InferenceTasks, RefusesFlagsThatContradictEachOther) {
  expect_refused("text-generation", split("--temperature 0.7"), 2, {"--temperature", "--do-sample"});
  expect_refused("text-generation", split("--top-k 5"), 2, {"--top-k", "--do-sample"});
  expect_refused("text-generation", split("--top-p 0.9"), 2, {"--top-p", "--do-sample"});
  expect_refused("text-generation", split("--do-sample --num-beams 2"), 2, {"--do-sample", "--num-beams 2"});
  expect_refused("translation", split("--do-sample"), 2, {"--do-sample", "text-generation", "translation"});
  expect_refused("text-generation", split("--do-sample --temperature 0"), 2, {"--temperature"});
}

}  // namespace
}  // namespace lockstep::testing
