#include "script.hpp"

#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "files.hpp"
#include "lockstep/core/error.hpp"

namespace texts {

using lockstep::Batch;
using lockstep::UsageError;
using lockstep::models::ScriptModel;
namespace fs = std::filesystem;

bool is_script(const std::string& model) { return fs::is_regular_file(model); }

void check_script_options(const std::string& model, const std::string& tokenizer) {
  if (!is_script(model)) return;
  char begin[2] = {};
  std::ifstream(model, std::ios::binary).read(begin, sizeof(begin));
  // A TorchScript file is a zip archive.
  if (std::string_view(begin, sizeof(begin)) != "PK") {
    throw UsageError(
        "--model " + model +
        " is neither a TorchScript file (torch.jit.script(net).save) nor a folder with config.json.");
  }
  if (!tokenizer.empty()) return;
  throw UsageError("--tokenizer is missing: the program " + model + " has none of its own.");
}

std::int64_t first_token_of(const lockstep::Tokenizer& tokenizer, const std::vector<std::string>& names) {
  std::string all;
  for (const auto& name : names) {
    if (const auto id = tokenizer.token_to_id(name)) return *id;
    all += (all.empty() ? "" : " or ") + name;
  }
  throw lockstep::DataError("the tokenizer has no token " + all + ", which a program from Python needs.");
}

at::Tensor trial_tokens(std::int64_t tokens) { return at::zeros({2, tokens}, at::kLong); }

ScriptModel load_script(const std::string& path, const std::vector<at::Tensor>& inputs,
                        at::IntArrayRef expected) {
  ScriptModel model(path);
  model.check_fits(inputs, expected, "--model " + path + " does not fit");
  return model;
}

std::shared_ptr<lockstep::ModelAdapter> adapt_script(const ScriptModel& model, ScriptInputs inputs) {
  return lockstep::wrap_model(model, [inputs = std::move(inputs)](auto& script, const Batch& batch) {
    return Batch{{"logits", script(inputs(batch))}};
  });
}

void save_script(const lockstep::Trainer& trainer, const ScriptModel& model, const std::string& tokenizer,
                 const Languages& languages) {
  trainer.accelerator().on_main_process([&] {
    model.save(fs::path(trainer.args().output_dir) / "model.pt");
    copy_tokenizer(tokenizer, trainer.args().output_dir, languages);
  });
}

}  // namespace texts
