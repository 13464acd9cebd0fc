// Trainings whose steps cannot be recorded as graphs.

#include <gtest/gtest.h>

#include <string>

#include "lockstep/core/error.hpp"
#include "support/graph_tape.hpp"
#include "support/throws.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

using testing::GraphTape;
using testing::TemporaryFolder;

constexpr std::int64_t kFewSteps = 20;

TrainingArguments arguments_of_a_recording(const TemporaryFolder& folder, CudaGraphs graphs) {
  TrainingArguments args = testing::arguments(folder);
  args.max_steps = kFewSteps;
  args.cuda_graphs = graphs;
  return args;
}

TrainerComponents few_samples() {
  return {.model = testing::small_model(false), .train_dataset = testing::samples(44)};
}

TEST(RecordedTraining, IsAnErrorWhereItMustAndCannot) {
  const TemporaryFolder folder;
  const TrainingArguments args = arguments_of_a_recording(folder, CudaGraphs::on);
  EXPECT_THROWS(Trainer(args, few_samples()).train(), UsageError, "cuda_graphs is on, but the device is cpu");
  const GraphTape tape;
  AcceleratorOptions options = accelerator_options(args);
  options.gradient_accumulation.sync_each_batch = true;
  const Accelerator accelerator(options);
  EXPECT_THROWS(Trainer(accelerator, args, few_samples()).train(), UsageError, "cuda_graphs is on",
                "sync_each_batch");
}

TEST(RecordedTraining, NeedsAStreamOfItsOwn) {
  const TemporaryFolder folder;
  GraphTape tape;
  tape.on_side_stream = false;
  ::testing::internal::CaptureStderr();
  Trainer trainer(arguments_of_a_recording(folder, CudaGraphs::automatic), few_samples());
  EXPECT_EQ(trainer.train().global_step, kFewSteps);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("The current stream is the default one"),
            std::string::npos);
  EXPECT_EQ(tape.recordings, 0);
}

}  // namespace
}  // namespace lockstep
