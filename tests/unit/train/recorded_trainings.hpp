#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "support/graph_tape.hpp"
#include "unit/train/small_trainings.hpp"

// Trainings whose steps are recorded as graphs, beside usual ones.
namespace lockstep::testing {

using Parts = std::function<TrainerComponents()>;
inline constexpr std::int64_t kSteps = 50;

inline TrainingArguments long_arguments(const TemporaryFolder& folder) {
  TrainingArguments args = arguments(folder);
  args.max_steps = kSteps;
  args.logging_steps = 1;
  args.lr_scheduler_type = "cosine";
  args.max_grad_norm = 0.3;
  args.cuda_graphs = CudaGraphs::automatic;
  args.weight_decay = 0.1;
  return args;
}

inline TrainerComponents plain(bool dropout = false) {
  return {.model = small_model(dropout), .train_dataset = samples(44), .eval_dataset = samples(13)};
}

struct Training {
  Outcome outcome;
  int recordings = 0, replays = 0;
  std::string log;
};

inline Training train_recorded(const TrainingArguments& args, const Parts& parts,
                               const std::string& leaves_out = "") {
  GraphTape tape;
  tape.leaves_out = leaves_out;
  Training result;
  ::testing::internal::CaptureStderr();
  try {
    Trainer trainer(args, parts());
    result.outcome = outcome_of(trainer, trainer.train());
  } catch (...) {
    ::testing::internal::GetCapturedStderr();
    throw;
  }
  result.log = ::testing::internal::GetCapturedStderr();
  result.recordings = tape.recordings;
  result.replays = tape.replays;
  return result;
}

/// The learning rate is rounded to float32 in a graph.
inline void expect_alike(const Outcome& one, const Outcome& other, double tolerance = 1e-5) {
  for (const char* name : {"loss", "grad_norm", "learning_rate"}) {
    const auto left = one.logged(name), right = other.logged(name);
    ASSERT_EQ(left.size(), right.size()) << name;
    for (std::size_t i = 0; i < left.size(); ++i)
      ASSERT_NEAR(left[i], right[i], tolerance) << name << " " << i;
  }
  ASSERT_EQ(one.weights.size(), other.weights.size());
  for (std::size_t i = 0; i < one.weights.size(); ++i)
    EXPECT_TRUE(at::allclose(one.weights[i], other.weights[i], tolerance, tolerance)) << "parameter " << i;
}

/// Both trainings; returns the recorded one.
inline Training expect_same_training(TrainingArguments args, const Parts& parts, double tolerance = 1e-5) {
  args.output_dir += "/usual";
  args.cuda_graphs = CudaGraphs::off;
  const Training usual = train_recorded(args, parts);
  EXPECT_EQ(usual.recordings, 0);
  args.output_dir += "/recorded";
  args.cuda_graphs = CudaGraphs::automatic;
  Training recorded = train_recorded(args, parts);
  expect_alike(recorded.outcome, usual.outcome, tolerance);
  return recorded;
}

}  // namespace lockstep::testing
