// Steps in which the host never waits for the GPU: the same on a CPU, where it has nothing to wait for.

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <optional>

#include "comm/deferred_reduction.hpp"
#include "fsdp_job.hpp"
#include "lockstep/comm/cuda.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "on_device.hpp"

namespace lockstep {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

/// While it lives, LibTorch throws where the host waits for a GPU.
class NoWaits {
 public:
  explicit NoWaits(const at::Device& device) : is_cuda_(device.is_cuda()) {
    if (is_cuda_) set_sync_debug_mode(SyncDebugMode::error);
  }
  ~NoWaits() {
    if (is_cuda_) set_sync_debug_mode(SyncDebugMode::off);
  }
  NoWaits(const NoWaits&) = delete;
  NoWaits& operator=(const NoWaits&) = delete;

 private:
  bool is_cuda_;
};

/// The first steps make memory.
constexpr std::int64_t kFirstSteps = 4;

TEST_P(OnDevice, WaitsAreSeen) {
  const at::Tensor one = at::ones({1}, device());
  const NoWaits guard(device());
  if (is_cuda()) {
    EXPECT_THROW(one.item<float>(), c10::Error);
  } else {
    EXPECT_EQ(one.item<float>(), 1);
  }
}

TEST_P(OnDevice, AStepWithAnAcceleratorDoesNotWait) {
  for (const bool is_sharded : {false, true}) {
    SCOPED_TRACE(is_sharded);
    AcceleratorOptions options = sharded(is_sharded, /*accumulation=*/2);
    // Even a group of one is sharded then.
    if (is_sharded) options.fsdp_plugin->mixed_precision_policy = MixedPrecision::bf16;
    run(
        1,
        [&](Accelerator& accelerator) {
          JobNet net = seeded_net(3);
          optim::AdamW adam(parameters_of(net), {.lr = 1e-3});
          optim::LrScheduler linear(adam, {.name = "linear", .num_training_steps = 20});
          DataLoader loader(
              samples(64),
              {.batch_size = 4, .num_workers = 1, .pin_memory = is_cuda(), .non_blocking = true});
          auto [model, optimizer, scheduler, batches] = accelerator.prepare(net, adam, linear, loader);
          std::optional<NoWaits> guard;
          at::Tensor loss;
          std::int64_t number = 0;
          for (auto& batch : batches) {
            if (++number == kFirstSteps) guard.emplace(device());
            const auto window = accelerator.accumulate();
            loss = (model(batch["x"]).to(at::kFloat) - batch["y"]).square().sum();
            accelerator.backward(loss, 4.0);
            accelerator.clip_grad_norm_(model, 1.0);
            optimizer.step();
            scheduler.step();
            optimizer.zero_grad();
            EXPECT_FALSE(accelerator.should_stop());
          }
          guard.reset();
          EXPECT_EQ(number, 16);
          EXPECT_TRUE(loss.isfinite().item<bool>());
        },
        options);
  }
}

TEST_P(OnDevice, AStepOfATrainerDoesNotWait) {
  /// Between two steps of a training.
  struct Guard final : TrainerCallback {
    explicit Guard(at::Device the_device) : device(the_device) {}
    void on_step_begin(CallbackContext& event) override {
      if (event.state.global_step == kFirstSteps) guard.emplace(device);
    }
    void on_step_end(CallbackContext& event) override {
      if (event.state.global_step == kFirstSteps + 6) guard.reset();
    }
    at::Device device;
    std::optional<NoWaits> guard;
  };
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.bf16 = true;
  args.logging_steps = 100;
  run(
      1,
      [&](const Accelerator& accelerator) {
        TrainerComponents parts{.model = small_model(), .train_dataset = samples(44)};
        parts.compute_loss = [](const Batch& outputs, const Batch&) {
          return Loss{outputs["loss"] * 4, 4.0};
        };
        parts.callbacks = {std::make_shared<Guard>(device())};
        Trainer trainer(accelerator, args, std::move(parts));
        EXPECT_EQ(trainer.train().global_step, 18);
      },
      accelerator_options(args));
}

TEST_P(OnDevice, PackedTextsDoNotWait) {
  torch::manual_seed(2);
  models::Gpt2LMHeadModel model(
      models::Gpt2Config{.vocab_size = 19, .n_positions = 8, .n_embd = 16, .n_layer = 2, .n_head = 2});
  model->eval();
  const at::Tensor ids = at::arange(24, at::kLong).view({3, 8}).remainder(19);
  const at::Tensor positions = at::arange(8).remainder(5).expand({3, 8}).contiguous();
  const at::Tensor expected = model->forward(ids, {}, positions);
  model->to(device());
  const at::Tensor ids_there = ids.to(device()), positions_there = positions.to(device());
  // The first one loads the kernels.
  model->forward(ids_there, {}, positions_there).sum().backward();
  std::optional<NoWaits> guard(device());
  const at::Tensor logits = model->forward(ids_there, {}, positions_there);
  models::causal_lm_loss(logits, ids_there).backward();
  guard.reset();
  EXPECT_TRUE(at::allclose(logits.to(at::kCPU), expected, 1e-4, 1e-4));
}

TEST_P(OnDevice, ADeferredReductionDoesNotWait) {
  run(1, [&](Accelerator& accelerator) {
    comm::DeferredReduction reduction(accelerator.process_group());
    EXPECT_FALSE(reduction.is_started());
    at::Tensor busy = at::ones({512, 512}, device());
    for (int round = 0; round < 3; ++round) {
      const NoWaits guard(device());
      reduction.start(at::full({2}, round, at::kInt), ReduceOp::max);
      EXPECT_TRUE(reduction.is_started());
      for (int i = 0; i < 50; ++i) busy = at::mm(busy, busy).mul_(0);
      const at::Tensor result = reduction.result();
      EXPECT_TRUE(result.is_cpu());
      EXPECT_TRUE(at::equal(result, at::full({2}, round, at::kInt)));
      EXPECT_FALSE(reduction.is_started());
    }
  });
}

}  // namespace
}  // namespace lockstep
