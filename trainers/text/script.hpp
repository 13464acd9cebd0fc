#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/script_model.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"
#include "lockstep/train/trainer.hpp"

namespace texts {

/// Whether --model names a program from Python, which is a file, and not a folder as Hugging Face's.
bool is_script(const std::string& model);

/// Throws UsageError for a file that is no program from Python, and where one comes without --tokenizer: it
/// has none of its own.
void check_script_options(const std::string& model, const std::string& tokenizer);

/// The first of these tokens that the tokenizer knows. Throws DataError where it knows none.
std::int64_t first_token_of(const lockstep::Tokenizer& tokenizer, const std::vector<std::string>& names);

/// Reads the program and tries it on zeros like `inputs`. Throws DataError for another file, UsageError
/// unless it returns scores of the `expected` sizes.
lockstep::models::ScriptModel load_script(const std::string& path, const std::vector<at::Tensor>& inputs,
                                          at::IntArrayRef expected);

/// Rows and tokens of zeros, as a trial input.
at::Tensor trial_tokens(std::int64_t tokens);

/// The program as Trainer takes it: "logits" from what `inputs` makes of a batch.
using ScriptInputs = std::function<std::vector<at::Tensor>(const lockstep::Batch& batch)>;
std::shared_ptr<lockstep::ModelAdapter> adapt_script(const lockstep::models::ScriptModel& model,
                                                     ScriptInputs inputs);

/// Writes the trained program as model.pt into the output_dir, and the tokenizer beside it.
void save_script(const lockstep::Trainer& trainer, const lockstep::models::ScriptModel& model,
                 const std::string& tokenizer);

}  // namespace texts
