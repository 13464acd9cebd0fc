#include "text_trainer.hpp"

#include <fstream>

namespace lockstep::testing {

using launch::read_file;

Finished run_alone(const Words& words) {
  return LauncherProcess(Words(words.begin() + 1, words.end()), {{"OMP_NUM_THREADS", "1"}}, {}, words.front())
      .wait();
}

std::vector<double> logged(const std::string& checkpoint, const std::string& name) {
  const auto state = nlohmann::json::parse(read_file(checkpoint + "/trainer_state.json"));
  std::vector<double> values;
  for (const auto& entry : state.at("log_history")) {
    if (entry.contains(name)) values.push_back(entry.at(name));
  }
  return values;
}

std::vector<double> golden_losses(const std::string& path) {
  std::ifstream golden(path);
  std::vector<double> losses;
  for (double step = 0, loss = 0; golden >> step >> loss;) losses.push_back(loss);
  return losses;
}

void TextTrainer::expect_refusal(const Words& words, int status,
                                 std::initializer_list<std::string_view> parts) const {
  const Finished alone = run_alone(words + Words{"--output-dir", file("refused")});
  EXPECT_EQ(alone.status, status) << alone.err;
  EXPECT_EQ(lines_of(alone.err).size(), 1U) << alone.err;
  EXPECT_TRUE(contains_all(alone.err, parts));
  EXPECT_EQ(count_lines_with(alone.out, "loss"), 0) << alone.out;
  EXPECT_FALSE(std::filesystem::exists(file("refused/model.safetensors")));
}

void TextTrainer::expect_refusals_of_arguments(const Words& words) const {
  expect_refusal(words + split("--load-best-model-at-end --eval-strategy epoch --save-strategy steps"), 2,
                 {"load_best_model_at_end", "eval_strategy is epoch but save_strategy is steps"});
  expect_refusal(words + split("--bf16 --fp16"), 2, {"bf16 and fp16"});
  expect_refusal(words + split("--fp16"), 2, {"fp16 needs a CUDA device"});
}

void TextTrainer::set_in_config(const std::string& name, const nlohmann::json& value) const {
  auto config = nlohmann::json::parse(read_file(file("model/config.json")));
  config[name] = value;
  std::ofstream(file("model/config.json")) << config.dump();
}

}  // namespace lockstep::testing
