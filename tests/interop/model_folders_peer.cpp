// The C++ side of model_folders_compare.py: `model_folders_peer TASK FOLDER OUT` loads the model in FOLDER,
// saves it to OUT, and writes OUT/answers.safetensors, what it says of some tokens.

#include <torch/types.h>

#include <filesystem>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/models/auto_model.hpp"

namespace {

namespace fs = std::filesystem;
namespace models = lockstep::models;

const models::GenerationConfig kSettings = {.max_new_tokens = 8, .num_beams = 2};

/// Loads the model, and saves it again.
template <class AutoModelOfTask>
auto saved_again(const fs::path& folder, const fs::path& out) {
  auto model = AutoModelOfTask::from_pretrained(folder);
  model->eval();
  models::save_pretrained(model, out);
  return model;
}

lockstep::TensorMap answers(const std::string& task, const fs::path& folder, const fs::path& out) {
  const torch::NoGradGuard no_grad;
  const at::Tensor tokens = torch::tensor({{5, 9, 12, 33, 4, 7, 2}}, torch::kLong);
  if (task == "encoder")
    return {{"logits", saved_again<models::AutoModel>(folder, out)(tokens).last_hidden_state}};
  if (task == "texts")
    return {{"logits", saved_again<models::AutoModelForSequenceClassification>(folder, out)(tokens)}};
  if (task == "tokens")
    return {{"logits", saved_again<models::AutoModelForTokenClassification>(folder, out)(tokens)}};
  if (task == "masked") return {{"logits", saved_again<models::AutoModelForMaskedLM>(folder, out)(tokens)}};
  if (task == "causal") {
    auto model = saved_again<models::AutoModelForCausalLM>(folder, out);
    return {{"logits", model(tokens)}, {"texts", models::generate(model, tokens, kSettings)}};
  }
  if (task == "image") {
    auto model = saved_again<models::AutoModelForImageClassification>(folder, out);
    return {{"logits", model(torch::arange(3 * 32 * 48).mul(0.37).sin().view({1, 3, 32, 48}))}};
  }
  auto model = saved_again<models::AutoModelForSeq2SeqLM>(folder, out);
  return {{"logits", model(tokens, at::Tensor(), tokens)},
          {"texts", models::generate(model, tokens, at::Tensor(), kSettings)}};
}

int run(int argc, char** argv) {
  if (argc != 4) throw lockstep::UsageError("expected: model_folders_peer TASK FOLDER OUT");
  lockstep::save_file(answers(argv[1], argv[2], argv[3]), fs::path(argv[3]) / "answers.safetensors");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("model_folders_peer", [&] { return run(argc, argv); });
}
