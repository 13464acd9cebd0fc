#include "checks.hpp"

#include <filesystem>

#include "generation.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/tokenize.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/sentence_encoder.hpp"
#include "text/files.hpp"

namespace {

namespace fs = std::filesystem;
namespace models = lockstep::models;

/// A model file has neither a configuration nor a vocabulary size to check.
void check_program(const Options& options) {
  if (options.task == "text-generation" || options.task == "translation") {
    throw lockstep::UsageError("--model " + options.model + " is a file, but --task " + options.task +
                               " needs a folder with config.json and weights");
  }
  if (options.tokenizer.empty()) {
    throw lockstep::UsageError("--model " + options.model +
                               " is a file: name the folder of its tokenizer with --tokenizer");
  }
  static_cast<void>(lockstep::load_tokenizer(options.tokenizer));
}

/// Vocabulary size of the model in --model, which must be one for the task.
std::int64_t vocabulary_of(const Options& options) {
  if (options.task == "text-generation")
    return models::AutoModelForCausalLM::config_of(options.model).vocab_size;
  if (options.task == "translation")
    return models::AutoModelForSeq2SeqLM::config_of(options.model).vocab_size;
  if (options.task == "text-classification")
    return models::AutoModelForSequenceClassification::config_of(options.model).vocab_size;
  return models::AutoModel::config_of(options.model).vocab_size;
}

}  // namespace

lockstep::ArrowDataset load_rows(const Options& options) {
  // Not texts::read_table, which keeps the line breaks of a text file's rows: prompts have none.
  auto rows = lockstep::ArrowDataset::load(options.data);
  if (rows.num_rows() == 0) throw lockstep::DataError("--data " + options.data + ": the file has no rows.");
  texts::check_texts(rows, "--column", options.column);
  return rows;
}

void check_model(const Options& options) {
  if (is_program(options)) return check_program(options);
  texts::check_vocabulary(tokenizer_path(options), options.model, vocabulary_of(options));
  if (options.task == "feature-extraction" && fs::exists(fs::path(options.model) / "modules.json")) {
    const auto config = models::SentenceEncoderConfig::from_file(options.model);
    texts::check_lower_case(tokenizer_path(options), options.model, config.do_lower_case);
  }
  if (is_generation(options)) static_cast<void>(generation_of(options));
  if (options.task != "translation") return;
  texts::check_languages(
      lockstep::load_tokenizer(tokenizer_path(options), texts::pretrained_options(options)), options,
      tokenizer_path(options));
}
