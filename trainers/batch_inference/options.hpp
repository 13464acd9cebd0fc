#pragma once

#include <cstdint>
#include <string>

#include "lockstep/core/options.hpp"

/// Options of the command line; options.cpp has the texts of `--help`.
struct Options {
  std::string data;
  std::string column = "text";
  std::string model;
  std::string tokenizer;
  std::string task = "feature-extraction";
  std::string output = "out/inference.jsonl";
  std::string output_column;
  std::int64_t batch_size = 32;
  std::int64_t max_length = 128;
  std::int64_t max_new_tokens = 32;
  std::int64_t num_beams = 1;
  bool do_sample = false;
  double temperature = 1.0;
  std::int64_t top_k = 50;
  double top_p = 1.0;
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

/// Throws UsageError for contradictory flags, and for flags of sampling without sampling.
void check_options(const lockstep::OptionTable<Options>::Parsed& parsed);
