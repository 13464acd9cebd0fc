#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "job.hpp"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using launch::read_file;

std::string example(const std::string& name) { return LOCKSTEP_EXAMPLES + name; }

/// Standard output of a successful example.
std::string output_of(const Words& words, int ranks) {
  const Finished job = run_job(words, ranks);
  EXPECT_EQ(job.status, 0) << job.err;
  return job.out;
}

TEST(Examples, DeferringExecutions) {
  const ScratchFolder folder;
  for (const int ranks : {1, 2}) {
    const auto out = output_of({example("deferring_executions"), "--folder", folder.file("work")}, ranks);
    EXPECT_TRUE(contains_all(out, {"downloads: 2 by the main process, 0 by the others",
                                   "mapped rows: 4 by the main process, 0 by the others",
                                   "weights: the same in " + std::to_string(ranks) + " process(es)"}));
  }
}

TEST(Examples, SayWhatTheyCannotDoWithout) {
  for (const char* name : {"data_parallel_gpt2", "map_with_rank", "text_classification_loop"}) {
    const Finished job = LauncherProcess({}, {{"OMP_NUM_THREADS", "1"}}, {}, example(name)).wait();
    EXPECT_EQ(job.status, 2) << name;
    EXPECT_TRUE(contains_all(job.err, {"--data is required", "--help"}));
  }
}

/// A file in SQuAD's format with `contexts` contexts.
void write_squad(const fs::path& path, int contexts) {
  std::ofstream file(path);
  file << R"({"version": "1.1", "data": [{"title": "T", "paragraphs": [)";
  for (int i = 0; i < contexts; ++i) {
    file << (i > 0 ? ", " : "") << R"({"qas": [], "context": "The river number )" << i
         << R"( flows from the hills to the sea, and the town on its banks is old."})";
  }
  file << "]}]}";
}

TEST(Examples, DataParallelGpt2) {
  const ScratchFolder folder;
  write_squad(folder.file("squad.json"), 400);
  const auto out = output_of({example("data_parallel_gpt2"), "--data", folder.file("squad.json"),
                              "--output-dir", folder.file("out"), "--learning-rate", "1e-3"},
                             2);
  double before = 0, after = 0;
  const auto place = out.find("data parallel over 2 rank(s): 100 steps, loss ");
  ASSERT_NE(place, std::string::npos) << out;
  ASSERT_EQ(std::sscanf(out.c_str() + place, "data parallel over 2 rank(s): 100 steps, loss %lf -> %lf",
                        &before, &after),
            2);
  EXPECT_GT(before, 5);
  EXPECT_LT(after, before / 2) << "the texts differ in a number only";
  for (const auto* step : {"out/step-50/", "out/step-100/"}) {
    EXPECT_TRUE(fs::exists(folder.file(step) + "config.json")) << step;
    EXPECT_TRUE(fs::exists(folder.file(step) + "model.safetensors")) << step;
  }
}

TEST(Examples, OwnDecoder) {
  const ScratchFolder folder;
  std::ofstream(folder.file("text")) << std::string(1 << 15, 'a');
  output_of({example("own_decoder"), "--train-file", folder.file("text"), "--output-dir", folder.file("out"),
             "--max-steps", "10", "--learning-rate", "1e-3", "--save-strategy", "no", "--report-to", "jsonl",
             "--logging-steps", "10"},
            2);
  const std::string log = read_file(folder.file("out/runs/metrics.jsonl"));
  double loss = 0;
  const auto found = log.find("\"train/loss\":");
  ASSERT_NE(found, std::string::npos) << log;
  ASSERT_EQ(std::sscanf(log.c_str() + found, "\"train/loss\":%lf", &loss), 1) << log;
  EXPECT_LT(loss, 5) << "each byte is the one before it; at random it is 5.5";
}

TEST(Examples, MapWithRank) {
  const ScratchFolder folder;
  std::ofstream data(folder.file("texts.csv"));
  data << "text\n";
  for (int i = 0; i < 50; ++i) data << "sentence number " << i << "\n";
  data.close();
  const Words words = {example("map_with_rank"), "--data", folder.file("texts.csv"),
                       "--max-new-tokens",       "8",      "--folder"};
  const auto run = [&](const std::string& name, int ranks) {
    Words all = words;
    all.push_back(folder.file(name));
    return output_of(all, ranks);
  };
  const auto two = run("two", 2), one = run("one", 1);
  EXPECT_TRUE(
      contains_all(two, {"50 rows translated in 5 batches; the model was set up ", " in 2 process(es)"}));
  EXPECT_TRUE(contains_all(two, {"set up 2 time(s)"}) || contains_all(two, {"set up 1 time(s)"})) << two;
  EXPECT_TRUE(contains_all(one, {" in 1 process(es)"}));
  const auto rows = read_file(folder.file("two/translated.jsonl"));
  EXPECT_EQ(lines_of(rows).size(), 50U);
  EXPECT_TRUE(rows == read_file(folder.file("one/translated.jsonl"))) << "the same for any number of workers";
}

TEST(Examples, InferenceTable) {
  const auto out = output_of({example("inference_table"), "--rows", "256", "--tokens", "16"}, 1);
  EXPECT_TRUE(contains_all(out, {"| method        |       32 |       64 |      128 |", "| one device ",
                                 " replicas ", "the logits are the same"}));
}

TEST(Examples, TextClassificationLoop) {
  const ScratchFolder folder;
  std::ofstream data(folder.file("reviews.csv"));
  data << "review,division\n";
  for (int i = 0; i < 600; ++i) {
    data << "I " << (i % 2 == 0 ? "love" : "hate") << " the product number " << i % 20 << ","
         << (i % 2 == 0 ? "positive" : "negative") << "\n";
    if (i % 10 == 0) data << "It is a product,neutral\n";
  }
  data.close();
  const auto out =
      output_of({example("text_classification_loop"), "--data", folder.file("reviews.csv"), "--output-dir",
                 folder.file("out"), "--epochs", "5", "--learning-rate", "2e-3", "--max-length", "12"},
                1);
  EXPECT_TRUE(
      contains_all(out, {"epoch 5 accuracy 1\n", "trained on 540 reviews with ", "accuracy on 60: 1\n"}));
  EXPECT_TRUE(fs::exists(folder.file("out/model.safetensors")));
}

/// An example that writes to its working directory.
/// The command line of an example that runs in the folder.
Words in_folder(const ScratchFolder& folder, const std::string& name) {
  return {"/bin/sh", "-c", "cd '" + folder.path() + "' && exec '" + example(name) + "'"};
}

std::string output_in(const ScratchFolder& folder, const std::string& name, int ranks) {
  return output_of(in_folder(folder, name), ranks);
}

TEST(Examples, Ddp) {
  for (const int ranks : {1, 2}) {
    const ScratchFolder folder;
    const auto out = output_in(folder, "ddp", ranks);
    std::vector<double> losses;
    for (const auto& line : lines_of(out)) {
      int epoch = 0;
      double loss = 0;
      ASSERT_EQ(std::sscanf(line.c_str(), "epoch %d: loss %lf", &epoch, &loss), 2) << out;
      losses.push_back(loss);
      EXPECT_EQ(epoch, static_cast<int>(losses.size())) << "rank 0 alone prints";
    }
    ASSERT_EQ(losses.size(), 3U) << out;
    EXPECT_LT(losses[2], losses[0] / 2);
    const auto weights = read_file(folder.file("ddp.safetensors"));
    EXPECT_TRUE(contains_all(weights, {"\"0.weight\"", "\"0.bias\"", "\"2.weight\"", "\"2.bias\""}));
  }
}

TEST(Examples, AccelerateResumesWithTheSameBits) {
  const ScratchFolder folder;
  const auto lines = lines_of(output_in(folder, "accelerate", 2));
  ASSERT_EQ(lines.size(), 3U);
  int right = 0;
  ASSERT_EQ(std::sscanf(lines[2].c_str(), "epoch 3: %d of 1000 right", &right), 1) << lines[2];
  EXPECT_GT(right, 950);
  const auto weights = read_file(folder.file("accelerate_run/model/model.safetensors"));
  ASSERT_FALSE(weights.empty());

  fs::remove_all(folder.file("accelerate_run/checkpoint-3"));
  fs::remove_all(folder.file("accelerate_run/model"));
  const auto resumed = lines_of(output_in(folder, "accelerate", 2));
  ASSERT_EQ(resumed.size(), 1U) << "two of three epochs were done";
  EXPECT_EQ(resumed[0], lines[2]);
  EXPECT_TRUE(read_file(folder.file("accelerate_run/model/model.safetensors")) == weights);

  for (const char* number : {"1", "2", "3"})
    std::ofstream(folder.file("accelerate_run/checkpoint-") + number + "/model.safetensors") << "x";
  const Finished damaged = run_job(in_folder(folder, "accelerate"), 2);
  EXPECT_NE(damaged.status, 0);
  EXPECT_TRUE(contains_all(damaged.err, {"no checkpoint in", "checkpoint-1", "checkpoint-3", "start over"}));
}

/// The last step has almost no learning rate left, whatever the number of ranks.
TEST(Examples, AccelerateSchedulesTheStepsOfAnyNumberOfRanks) {
  for (const int ranks : {1, 3}) {
    const ScratchFolder folder;
    const auto lines = lines_of(output_in(folder, "accelerate", ranks));
    ASSERT_EQ(lines.size(), 3U);
    EXPECT_TRUE(lines[2].ends_with("learning rate 0")) << lines[2];
    EXPECT_FALSE(lines[1].ends_with("learning rate 0")) << lines[1];
  }
}

}  // namespace
}  // namespace lockstep::testing
