#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/script_model.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"
#include "lockstep/train/trainer.hpp"
#include "text/languages.hpp"

namespace texts {

/// Whether --model is a TorchScript file from Python, rather than a folder like Hugging Face's.
bool is_script(const std::string& model);

/// Throws UsageError if the file is not TorchScript, and if --tokenizer is missing: such a file has none.
void check_script_options(const std::string& model, const std::string& tokenizer);

/// The first of these tokens that the tokenizer has. Throws DataError if it has none.
std::int64_t first_token_of(const lockstep::Tokenizer& tokenizer, const std::vector<std::string>& names);

/// Loads the file and runs it on zeros like `inputs`. Throws DataError for another kind of file, UsageError
/// unless it returns scores of the `expected` sizes.
lockstep::models::ScriptModel load_script(const std::string& path, const std::vector<at::Tensor>& inputs,
                                          at::IntArrayRef expected);

/// Rows and tokens of zeros, as a trial input.
at::Tensor trial_tokens(std::int64_t tokens);

/// An adapter for Trainer: "logits" from the tensors that `inputs` returns for a batch.
using ScriptInputs = std::function<std::vector<at::Tensor>(const lockstep::Batch& batch)>;
std::shared_ptr<lockstep::ModelAdapter> adapt_script(const lockstep::models::ScriptModel& model,
                                                     ScriptInputs inputs);

/// Writes the trained model as model.pt to the output_dir, with the tokenizer.
void save_script(const lockstep::Trainer& trainer, const lockstep::models::ScriptModel& model,
                 const std::string& tokenizer, const Languages& languages = {});

}  // namespace texts
