#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/core/options.hpp"
#include "text/languages.hpp"

/// Options of the command line; options.cpp has the texts of `--help`.
struct Options : texts::Languages {
  std::string data;
  std::string column = "text";
  std::string model;
  std::string adapter;
  std::string tokenizer;
  std::string task = "feature-extraction";
  std::string output = "out/inference.jsonl";
  std::string output_column;
  std::int64_t batch_size = 32;
  std::int64_t max_length = 128;
  /// Those without a value are as in the model's folder.
  std::optional<std::int64_t> max_new_tokens;
  std::optional<std::int64_t> num_beams;
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::uint64_t seed = 42;
  int num_proc = 0;
  std::string cache_dir;
  std::string device = "auto";
  std::int64_t timeout = 1800;
  bool progress = true;
};

/// Whether the model is a file exported from Python rather than a folder.
bool is_program(const Options& options);

/// The path of the tokenizer: --tokenizer, otherwise the model's folder.
const std::string& tokenizer_path(const Options& options);

const lockstep::OptionTable<Options>& option_table();

/// Throws UsageError for contradictory flags.
void check_options(const lockstep::OptionTable<Options>::Parsed& parsed);
