#pragma once

#include <cstdint>
#include <string>

#include "lockstep/core/options.hpp"

/// What the program can be told on its command line; `--help` shows the same from options.cpp.
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
  int num_proc = 0;
  std::string cache_dir;
  std::string device = "auto";
  std::int64_t timeout = 1800;
  bool progress = true;
};

/// Whether the model is a file, a program from Python, and not a folder.
bool is_program(const Options& options);

const lockstep::OptionTable<Options>& option_table();
