#include "options.hpp"

using lockstep::at_least;
using lockstep::one_of;
using lockstep::required;

const lockstep::OptionTable<Options>& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>(
          "embeddings",
          "Trains an encoder whose vectors are close for texts that belong together, on pairs of texts, with "
          "the other pairs of the batch, of all ranks, as negatives: sentence-transformers' "
          "MultipleNegativesRankingLoss. Runs alone, or on many ranks under 'lockstep run' or torchrun.")
          .grammar({.environment_prefix = "", .config_option = "config"})
          .section("model")
          .add("model", &Options::model,
               "Folder of sentence-transformers, or of an encoder such as BERT, which gets the mean of its "
               "tokens, of length 1, as a text's vector.",
               required())
          .add("tokenizer", &Options::tokenizer,
               "tokenizer.json, or a folder with the tokenizer's files; default: the one in --model.")
          .add("dtype", &Options::dtype, "The dtype of the weights; auto: as config.json says, or the files.",
               one_of({"float32", "bfloat16", "float16", "auto"}))
          .section("data")
          .add(
              "train-file", &Options::train_file,
              "Training data: .jsonl, .csv, .arrow, .parquet, or a folder of a saved data set, with a column "
              "of queries, one of documents that answer them, and any number of hard negatives.",
              required())
          .add(
              "validation-file", &Options::validation_file,
              "Evaluation data: the same columns (search among the documents of the file), or two columns of "
              "texts and a score of their similarity.")
          .add("text-columns", &Options::text_columns,
               "The columns of texts, queries first; default: all columns but the score, in their order.")
          .add("score-column", &Options::score_column,
               "The column of --validation-file with the similarity of two texts.")
          .add("query-prompt", &Options::query_prompt, "What each query begins with, such as 'query: '.")
          .add("document-prompt", &Options::document_prompt,
               "What each document and hard negative begins with.")
          .add(
              "max-length", &Options::max_length,
              "Longer texts are cut to this many tokens. 0: as the folder says, or the model's maximum input "
              "length.",
              at_least(0))
          .add("cache-dir", &Options::cache_dir, "Folder for tokenized data; default: the user's cache.")
          .section("loss")
          .add("scale", &Options::scale, "Similarities are multiplied by it: 1 / temperature.",
               lockstep::more_than(0))
          .add("similarity", &Options::similarity,
               "The similarity of two vectors: their cosine, or dot product.", one_of({"cosine", "dot"}))
          .add("symmetric", &Options::symmetric, "Also search the query of each document among all queries.")
          .add("mini-batch-size", &Options::mini_batch_size,
               "Encode this many texts at a time, with a second forward (GradCache): batches of any size in "
               "their memory. 0: the whole batch.",
               at_least(0))
          .include(lockstep::training_argument_table());
  return table;
}

std::vector<program_options::DependentOption> dependent_options(const Options& options) {
  return {{"score-column", !options.validation_file.empty() || options.text_columns.empty(),
           "with --validation-file, or without --text-columns"}};
}

lockstep::models::InBatchNegativesOptions loss_options(const Options& options) {
  return {.scale = options.scale, .cosine = options.similarity == "cosine", .symmetric = options.symmetric};
}
