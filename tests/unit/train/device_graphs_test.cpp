// Trainings whose steps are recorded as CUDA graphs, beside the same ones that are not. On a CPU both are
// usual.

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include "lockstep/core/error.hpp"
#include "small_trainings.hpp"
#include "support/throws.hpp"
#include "unit/train/on_device.hpp"

namespace lockstep {
namespace {

using testing::arguments;
using testing::OnDevice;
using testing::Outcome;
using testing::outcome_of;
using testing::samples;
using testing::small_model;
using testing::TemporaryFolder;
using PartsOf = std::function<TrainerComponents()>;
using RunOn = std::function<void(const std::function<void(const Accelerator&)>&, const AcceleratorOptions&)>;

TrainingArguments fifty_steps(const TemporaryFolder& folder) {
  TrainingArguments args = arguments(folder);
  args.max_steps = 50;
  args.gradient_accumulation_steps = 1;
  args.logging_steps = 1;
  args.max_grad_norm = 0.3;
  args.weight_decay = 0.1;
  args.resume_from_checkpoint = "never";
  return args;
}

/// A training, and what it wrote to the log.
struct Trained {
  Outcome outcome;
  std::string log;
};

Trained trained(const RunOn& run_on, TrainingArguments args, const PartsOf& parts, CudaGraphs graphs) {
  args.cuda_graphs = graphs;
  Trained result;
  ::testing::internal::CaptureStderr();
  try {
    run_on(
        [&](const Accelerator& accelerator) {
          Trainer trainer(accelerator, args, parts());
          result.outcome = outcome_of(trainer, trainer.train());
        },
        accelerator_options(args));
  } catch (...) {
    std::cerr << ::testing::internal::GetCapturedStderr();
    throw;
  }
  result.log = ::testing::internal::GetCapturedStderr();
  return result;
}

void expect_same_outcome(const Outcome& one, const Outcome& other, double tolerance) {
  for (const char* const name : {"loss", "grad_norm"}) {
    const auto left = one.logged(name), right = other.logged(name);
    ASSERT_EQ(left.size(), right.size());
    for (std::size_t i = 0; i < left.size(); ++i)
      ASSERT_NEAR(left[i], right[i], tolerance * (1 + std::abs(right[i]))) << name << " of step " << i + 1;
  }
  for (std::size_t i = 0; i < one.weights.size(); ++i) {
    EXPECT_TRUE(at::allclose(one.weights[i].cpu(), other.weights[i].cpu(), tolerance, tolerance)) << i;
  }
}

class GraphsOnDevice : public OnDevice {
 protected:
  /// `on` where there are graphs: an error if steps cannot be recorded.
  CudaGraphs must() const { return is_cuda() ? CudaGraphs::on : CudaGraphs::automatic; }
  RunOn one_rank() const {
    return [this](const std::function<void(const Accelerator&)>& body, const AcceleratorOptions& options) {
      run(
          1, [&](Accelerator& accelerator) { body(accelerator); }, options);
    };
  }
  void expect_same(const TrainingArguments& args, const PartsOf& parts, double tolerance = 1e-4) const {
    const Trained usual = trained(one_rank(), args, parts, CudaGraphs::off);
    const Trained recorded = trained(one_rank(), args, parts, must());
    expect_same_outcome(recorded.outcome, usual.outcome, tolerance);
    EXPECT_EQ(recorded.log.find("not recorded"), std::string::npos) << recorded.log;
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, GraphsOnDevice, ::testing::Values("cpu", "cuda:0"));

/// With 45 samples the last batch of an epoch has one row.
TEST_P(GraphsOnDevice, ARecordedTrainingHasTheLossesOfAUsualOne) {
  for (const std::int64_t accumulation : {1, 2, 3}) {
    SCOPED_TRACE(accumulation);
    const TemporaryFolder folder;
    TrainingArguments args = fifty_steps(folder);
    args.gradient_accumulation_steps = accumulation;
    expect_same(args, [] { return TrainerComponents{.model = small_model(), .train_dataset = samples(45)}; });
  }
}

TEST_P(GraphsOnDevice, ARecordedTrainingHasTheDropoutOfAUsualOne) {
  for (const bool bf16 : {false, true}) {
    SCOPED_TRACE(bf16);
    const TemporaryFolder folder;
    TrainingArguments args = fifty_steps(folder);
    args.bf16 = bf16;
    expect_same(
        args, [] { return TrainerComponents{.model = small_model(true), .train_dataset = samples(44)}; },
        1e-3);
  }
}

/// With fp16 forward and backward are recorded if that is asked for.
TEST_P(GraphsOnDevice, ARecordedTrainingScalesLosses) {
  if (!is_cuda()) return;
  for (const std::int64_t accumulation : {1, 2}) {
    SCOPED_TRACE(accumulation);
    const TemporaryFolder folder;
    TrainingArguments args = fifty_steps(folder);
    args.gradient_accumulation_steps = accumulation;
    args.fp16 = true;
    expect_same(
        args, [] { return TrainerComponents{.model = small_model(), .train_dataset = samples(44)}; }, 2e-3);
  }
}

TEST_P(GraphsOnDevice, ARecordedTrainingDividesByWeights) {
  for (const std::int64_t accumulation : {1, 2}) {
    SCOPED_TRACE(accumulation);
    const TemporaryFolder folder;
    TrainingArguments args = fifty_steps(folder);
    args.gradient_accumulation_steps = accumulation;
    expect_same(args, [] {
      TrainerComponents made{.model = small_model(), .train_dataset = samples(44)};
      made.compute_loss = [](const Batch& outputs, const Batch& batch) {
        const at::Tensor weights = batch["x"].select(1, 0).abs().add(0.1);
        return Loss{((outputs["prediction"] - batch["y"]).square().squeeze(1) * weights).sum(),
                    weights.sum()};
      };
      return made;
    });
  }
}

/// As when a state is loaded; with evaluations and checkpoints in between.
TEST_P(GraphsOnDevice, ARecordedTrainingIsRecordedAnewWithAnotherState) {
  struct Replace final : TrainerCallback {
    void on_step_end(CallbackContext& event) override {
      if (event.state.global_step != 20) return;
      for (auto& [parameter, state] : event.trainer.optimizer()->state()) {
        auto& adam = static_cast<torch::optim::AdamParamState&>(*state);
        adam.exp_avg(adam.exp_avg().clone().mul_(0.5));
      }
      const auto weight = event.trainer.model().parameters()[0].tensor;
      weight.set_data(weight.detach().clone().mul_(0.5));
    }
  };
  const TemporaryFolder folder;
  TrainingArguments args = fifty_steps(folder);
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 7;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 9;
  expect_same(args, [] {
    TrainerComponents made{
        .model = small_model(true), .train_dataset = samples(44), .eval_dataset = samples(9)};
    made.callbacks = {std::make_shared<Replace>()};
    return made;
  });
}

/// The device and its random numbers work on after a recording that failed half-way.
TEST_P(GraphsOnDevice, ATrainingGoesOnWhereARecordingFails) {
  struct Case {
    const char* name;
    std::function<at::Tensor(const at::Tensor& loss, int call)> change;
    const char* reason;
  };
  const std::vector<Case> cases = {
      {"waits", [](const at::Tensor& loss, int) { return loss.item<double>() > 1e9 ? loss * 0 : loss; },
       "waits for the device"},
      {"waits late",
       [](const at::Tensor& loss, int call) {
         return call > 5 && loss.item<double>() > 1e9 ? loss * 0 : loss;
       },
       ""},
      {"reads the host",
       [](const at::Tensor& loss, int) {
         return loss *
                at::scalar_tensor(2.0, at::kDouble).to(loss.device(), /*non_blocking=*/true).to(at::kFloat);
       },
       ""},
      {"random numbers of the CPU",
       [](const at::Tensor& loss, int) { return loss * (1 + 0 * at::rand({}).item<double>()); },
       "random numbers on the CPU"}};
  for (const auto& [name, change, reason] : cases) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    const TrainingArguments args = fifty_steps(folder);
    const auto parts = [&change = change] {
      TrainerComponents made{.model = small_model(true), .train_dataset = samples(44)};
      made.compute_loss = [&change, call = 0](const Batch& outputs, const Batch&) mutable {
        return Loss{change(outputs["loss"], ++call)};
      };
      return made;
    };
    const Trained usual = trained(one_rank(), args, parts, CudaGraphs::off);
    const Trained recorded = trained(one_rank(), args, parts, CudaGraphs::automatic);
    expect_same_outcome(recorded.outcome, usual.outcome, 1e-5);
    if (!is_cuda()) continue;
    EXPECT_NE(recorded.log.find("cuda_graphs: steps are not recorded"), std::string::npos) << recorded.log;
    EXPECT_NE(recorded.log.find(reason), std::string::npos) << recorded.log;
    EXPECT_THROWS(trained(one_rank(), args, parts, CudaGraphs::on), UsageError, "cuda_graphs is on");
  }
}

}  // namespace
}  // namespace lockstep
