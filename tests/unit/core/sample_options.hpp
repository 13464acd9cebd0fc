#pragma once

#include "lockstep/core/options.hpp"

namespace lockstep {

/// An options struct with a field of every type, for tests.
struct Sample {
  std::int64_t epochs = 10;
  int workers = 2;
  std::uint64_t seed = 42;
  double learning_rate = 1e-3;
  double clip = 1.0;
  std::string device = "auto";
  std::string output_dir = "out";
  bool resume = false;
  bool shuffle = true;
  std::optional<std::string> data;
  std::optional<double> warmup;
  std::optional<bool> compiled;
  std::vector<std::string> columns = {"text"};
  std::vector<std::string> files;
};

inline OptionTable<Sample> sample_table() {
  return OptionTable<Sample>("sample", "Trains a small network.")
      .add("epochs", &Sample::epochs, "Passes over the training data.", at_least(1))
      .add("workers", &Sample::workers, "Loader threads.", between(0, 64), short_name('w'))
      .add("seed", &Sample::seed, "Where randomness starts.")
      .add("learning-rate", &Sample::learning_rate, "Step size of the optimizer.", more_than(0.0))
      .add("clip", &Sample::clip, "Largest norm of the gradients.", or_non_finite())
      .add("device", &Sample::device, "Where to train.", one_of({"auto", "cpu", "cuda"}))
      .add("output-dir", &Sample::output_dir, "Where results go.", metavar("DIR"), not_empty())
      .add("resume", &Sample::resume, "Goes on from the last checkpoint.", short_name('r'))
      .add("shuffle", &Sample::shuffle, "Shuffles every epoch.")
      .add("data", &Sample::data, "The data set.", metavar("FILE"))
      .add("warmup", &Sample::warmup, "Share of the steps that warm up.", at_least(0), less_than(1))
      .add("compiled", &Sample::compiled, "Compiles the model.")
      .add("columns", &Sample::columns, "Columns to read.");
}

}  // namespace lockstep
