// What a training does on its device: on the CPU and, if a driver is installed, on the first GPU, as one rank
// over NCCL and as two ranks that share the GPU over Gloo.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include <limits>

#include "lockstep/core/error.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/models/sync_batch_norm.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/optim/zero_redundancy_optimizer.hpp"
#include "lockstep/parallel/data_parallel.hpp"
#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/executable_batch_size.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/train/on_device.hpp"

namespace lockstep {
namespace {

using std::chrono::seconds;
using testing::expect_close;
using testing::OnDevice;
using testing::RanksOnDevice;

INSTANTIATE_TEST_SUITE_P(Devices, OnDevice, ::testing::Values("cpu", "cuda:0"));
INSTANTIATE_TEST_SUITE_P(Devices, RanksOnDevice, ::testing::Values("cpu", "cuda:0"));

/// Two branches, one of which may be left out; initially the same everywhere.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    const at::NoGradGuard no_grad;
    for (auto& parameter : parameters())
      parameter.copy_(at::arange(parameter.numel()).remainder(11).sub(5).mul(0.05).view_as(parameter));
  }
  at::Tensor forward(const at::Tensor& rows, bool with_side = true) {
    const at::Tensor hidden = torch::tanh(first(rows));
    return with_side ? last(hidden) + side(hidden) : last(hidden);
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 16));
  torch::nn::Linear side = register_module("side", torch::nn::Linear(16, 2));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(16, 2));
};
TORCH_MODULE(Net);

at::Tensor some_rows(std::int64_t count) { return at::arange(count * 6).mul(0.37).sin().view({count, 6}); }

std::vector<at::Tensor> weights_of(Net& net) {
  std::vector<at::Tensor> weights;
  for (const auto& parameter : net->parameters()) weights.push_back(parameter.detach().cpu().clone());
  return weights;
}

/// The weights of a single process after three steps of two micro-batches on all rows.
std::vector<at::Tensor> trained_alone(const at::Device& device, bool with_side) {
  Net net;
  net->to(device);
  torch::optim::SGD optimizer(net->parameters(), 0.25);
  const at::Tensor rows = some_rows(16).to(device);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    net->forward(rows, with_side).square().mean().backward();
    optimizer.step();
  }
  return weights_of(net);
}

TEST_P(RanksOnDevice, RanksTrainAsOneProcess) {
  struct Setting {
    bool views, static_graph, unused;
  };
  for (const auto& setting : {Setting{true, false, false}, Setting{false, false, false},
                              Setting{true, true, false}, Setting{true, false, true}}) {
    const auto expected = trained_alone(device(), !setting.unused);
    for (const int ranks : {1, 2}) {
      AcceleratorOptions options{.gradient_accumulation_steps = 2};
      options.ddp.find_unused_parameters = setting.unused;
      options.ddp.gradient_as_bucket_view = setting.views;
      options.ddp.static_graph = setting.static_graph;
      run(
          ranks,
          [&](Accelerator& accelerator) {
            Net net;
            torch::optim::SGD sgd(net->parameters(), 0.25);
            auto [model, optimizer] = accelerator.prepare(net, sgd);
            const auto rows = some_rows(16).to(accelerator.device()).chunk(2 * accelerator.num_processes());
            for (int step = 0; step < 3; ++step) {
              for (std::size_t micro = 0; micro < 2; ++micro) {
                const auto guard = accelerator.accumulate(model);
                const auto mine = rows[micro * static_cast<std::size_t>(accelerator.num_processes()) +
                                       static_cast<std::size_t>(accelerator.process_index())];
                accelerator.backward(model(mine, !setting.unused).square().mean());
                optimizer.step();
                optimizer.zero_grad();
              }
            }
            expect_close(weights_of(net), expected);
          },
          options);
    }
  }
}

TEST_P(RanksOnDevice, MixedPrecisionSkipsStepsThatOverflow) {
  for (const auto precision : {MixedPrecision::bf16, MixedPrecision::fp16}) {
    if (precision == MixedPrecision::fp16 && !is_cuda()) continue;
    run(2,
        [&](Accelerator& accelerator) {
          Net one, other;
          torch::optim::SGD first(one->parameters(), 0.25), second(other->parameters(), 0.25);
          auto [model, opt, other_model, other_opt] = accelerator.prepare(one, first, other, second);
          const at::Tensor rows = some_rows(8).to(accelerator.device());
          std::vector<double> losses;
          for (int step = 0; step < 6; ++step) {
            const at::Tensor loss = model(rows).to(at::kFloat).square().mean();
            losses.push_back(loss.item<double>());
            accelerator.backward(loss);
            // For one rank and one optimizer only.
            const bool overflows = step == 3 && accelerator.process_index() == 1;
            const at::Tensor factor =
                at::full({}, overflows ? std::numeric_limits<double>::infinity() : 1.0, rows.options());
            accelerator.backward(other_model(rows).to(at::kFloat).square().mean() * factor);
            const auto before = weights_of(other);
            opt.step();
            other_opt.step();
            const bool skipped = precision == MixedPrecision::fp16 && step == 3;
            EXPECT_EQ(other_opt.step_was_skipped(), skipped) << step;
            EXPECT_FALSE(opt.step_was_skipped()) << "its own gradients were finite";
            if (skipped) expect_close(weights_of(other), before, 0);
            opt.zero_grad();
            other_opt.zero_grad();
            if (precision == MixedPrecision::bf16 && step == 2) break;
          }
          EXPECT_LT(losses.back(), losses.front());
          for (const auto& weight : weights_of(one)) EXPECT_EQ(weight.scalar_type(), at::kFloat);
        },
        {.mixed_precision = precision});
  }
}

template <class Optimizer>
std::vector<at::Tensor> steps_of(Net net, Optimizer&& optimizer, const at::Device& device) {
  const at::Tensor rows = some_rows(8).to(device);
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    net->forward(rows).square().sum().backward();
    optimizer.step();
  }
  return weights_of(net);
}

TEST_P(OnDevice, OptimizersAreLibTorchs) {
  const auto net = [this] {
    Net made;
    made->to(device());
    return made;
  };
  Net a = net(), b = net(), c = net(), d = net(), e = net(), f = net();
  expect_close(
      steps_of(a, optim::AdamW(a->parameters(), {.lr = 0.01, .weight_decay = 0.1}), device()),
      steps_of(b, torch::optim::AdamW(b->parameters(), torch::optim::AdamWOptions(0.01).weight_decay(0.1)),
               device()));
  expect_close(steps_of(c, optim::Adam(c->parameters(), {.lr = 0.01}), device()),
               steps_of(d, torch::optim::Adam(d->parameters(), torch::optim::AdamOptions(0.01)), device()));
  expect_close(steps_of(e, optim::SGD(e->parameters(), {.lr = 0.01, .momentum = 0.9}), device()),
               steps_of(f, torch::optim::SGD(f->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)),
                        device()));
}

TEST_P(OnDevice, ClippingIsLibTorchs) {
  run(1, [&](Accelerator& accelerator) {
    Net net, twin;
    twin->to(device());
    auto model = accelerator.prepare(net);
    const at::Tensor rows = some_rows(8).to(device());
    for (const double limit : {0.1, std::numeric_limits<double>::infinity()}) {
      accelerator.backward(model(rows).square().sum());
      twin->forward(rows).square().sum().backward();
      const at::Tensor norm = accelerator.clip_grad_norm_(model, limit);
      EXPECT_EQ(norm.device(), device());
      EXPECT_NEAR(norm.item<double>(), torch::nn::utils::clip_grad_norm_(twin->parameters(), limit), 1e-4);
      for (std::size_t i = 0; i < net->parameters().size(); ++i)
        EXPECT_TRUE(at::allclose(net->parameters()[i].grad(), twin->parameters()[i].grad(), 1e-4, 1e-6));
      net->zero_grad();
      twin->zero_grad();
    }
  });
}

/// Also for channels-last images, and if a rank has no rows.
TEST_P(RanksOnDevice, SyncBatchNormIsBatchNormOverAllRanks) {
  const at::Tensor images = at::arange(6 * 4 * 3 * 3).mul(0.61).sin().view({6, 4, 3, 3}).to(device());
  torch::nn::BatchNorm2d plain(4);
  plain->to(device());
  const at::Tensor input = images.clone().requires_grad_();
  const at::Tensor wanted = plain(input);
  wanted.pow(3).sum().backward();
  for (const std::int64_t first : {4, 6}) {
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      run(2, [&](const Accelerator& accelerator) {
        models::SyncBatchNorm synced(models::SyncBatchNormOptions{.num_features = 4},
                                     accelerator.process_group());
        synced->to(device());
        const std::int64_t begin = accelerator.process_index() == 0 ? 0 : first;
        const std::int64_t count = accelerator.process_index() == 0 ? first : 6 - first;
        const at::Tensor mine = images.narrow(0, begin, count).clone(format).requires_grad_();
        const at::Tensor output = synced(mine);
        EXPECT_TRUE(at::allclose(output, wanted.narrow(0, begin, count), 1e-4, 1e-5));
        output.pow(3).sum().backward();
        EXPECT_TRUE(at::allclose(mine.grad(), input.grad().narrow(0, begin, count), 1e-3, 1e-4));
        const at::Tensor gradient = synced->weight.grad().clone();
        accelerator.process_group().all_reduce(gradient);
        EXPECT_TRUE(at::allclose(gradient, plain->weight.grad(), 1e-3, 1e-3));
        EXPECT_TRUE(at::allclose(synced->running_var, plain->running_var, 1e-4, 1e-5));
      });
    }
  }
}

TEST_P(OnDevice, ADividedOptimizerIsTheWholeOne) {
  Net whole;
  whole->to(device());
  const auto expected = steps_of(whole, optim::AdamW(whole->parameters(), {.lr = 0.01}), device());
  run(2, [&](Accelerator& accelerator) {
    Net net;
    net->to(device());
    optim::ZeroRedundancyOptimizer optimizer(optim::AdamW(net->parameters(), {.lr = 0.01}),
                                             accelerator.process_group());
    expect_close(steps_of(net, optimizer, device()), expected, 0);
  });
}

/// With dropout, whose random numbers are the device's.
TEST_P(OnDevice, ACheckpointResumesBitForBit) {
  for (const bool asynchronous : {false, true}) {
    const testing::TemporaryFolder folder;
    run(1, [&](Accelerator& accelerator) {
      torch::nn::Sequential net(torch::nn::Linear(6, 32), torch::nn::Dropout(0.5), torch::nn::Linear(32, 1));
      optim::AdamW adam(net->parameters(), {.lr = 0.01});
      torch::manual_seed(5);
      auto [model, optimizer] = accelerator.prepare(net, adam);
      const at::Tensor rows = some_rows(8).to(device());
      const auto train = [&, &trained = model, &steps = optimizer] {
        std::vector<double> losses;
        for (int step = 0; step < 3; ++step) {
          const at::Tensor loss = trained(rows).square().mean();
          accelerator.backward(loss);
          steps.step();
          steps.zero_grad();
          losses.push_back(loss.template item<double>());
        }
        return losses;
      };
      train();
      accelerator.save_state(folder / "state", {}, {.asynchronous = asynchronous});
      const auto expected = train();
      accelerator.wait_for_save();
      accelerator.load_state(folder / "state");
      EXPECT_EQ(train(), expected);
    });
  }
}

/// The consumer is slower than the workers: a batch's memory must not be reused before it was read.
TEST_P(OnDevice, BatchesArriveWholeBesideTheComputation) {
  const std::int64_t count = 64, width = 1 << 14;
  const auto rows = std::make_shared<TensorDataset>(
      Batch{{"x", at::arange(count).view({count, 1}).expand({count, width}).contiguous()}});
  run(1, [&](Accelerator& accelerator) {
    DataLoader loader = accelerator.prepare(DataLoader(rows, {.batch_size = 4,
                                                              .num_workers = 2,
                                                              .prefetch_factor = 2,
                                                              .pin_memory = is_cuda(),
                                                              .non_blocking = true}));
    at::Tensor work = at::ones({is_cuda() ? 2048 : 128, is_cuda() ? 2048 : 128}, at::TensorOptions(device()));
    std::vector<at::Tensor> seen;
    for (auto& batch : loader) {
      EXPECT_EQ(batch["x"].device(), device());
      for (int i = 0; i < 8; ++i) work = at::mm(work, work).div_(static_cast<double>(work.size(0)));
      seen.push_back(batch["x"].amin(1));
      seen.push_back(batch["x"].amax(1));
    }
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const auto first = static_cast<std::int64_t>(i / 2) * 4;
      EXPECT_TRUE(at::equal(seen[i].cpu(), at::arange(first, first + 4))) << i;
    }
  });
}

TEST_P(OnDevice, DataParallelIsTheModelItself) {
  Net net, twin;
  net->to(device());
  twin->to(device());
  const at::Tensor rows = some_rows(7).to(device());
  DataParallel<Net> model(net, {.devices = {2, device()}}, [] { return Net(); });
  const at::Tensor output = model(rows), expected = twin->forward(rows);
  EXPECT_TRUE(at::allclose(output, expected, 1e-5, 1e-6));
  output.square().sum().backward();
  expected.square().sum().backward();
  for (std::size_t i = 0; i < net->parameters().size(); ++i)
    EXPECT_TRUE(at::allclose(net->parameters()[i].grad(), twin->parameters()[i].grad(), 1e-4, 1e-5)) << i;
}

TEST_P(OnDevice, TheMainProcessGoesFirst) {
  run(2, [&](const Accelerator& accelerator) {
    const at::Tensor sum = accelerator.main_process_first(
        [&] { return at::full({3}, accelerator.process_index() + 1.0, at::TensorOptions(device())); });
    accelerator.process_group().all_reduce(sum);
    EXPECT_TRUE(at::equal(sum.cpu(), at::full({3}, 3.0)));
  });
}

/// A missing rank is named, and no rank hangs.
TEST_P(OnDevice, RanksThatDoNotArriveAreNamed) {
  run(
      2,
      [&](const Accelerator& accelerator) {
        if (accelerator.process_index() == 1) return;
        EXPECT_THROWS(accelerator.wait_for_everyone(), TimeoutError, "rank 1");
      },
      {}, seconds(1));
}

/// Tries smaller batches until one fits.
TEST_P(OnDevice, OutOfMemoryIsSurvived) {
  run(1, [&](const Accelerator& accelerator) {
    std::vector<std::int64_t> sizes;
    const auto fits = find_executable_batch_size(accelerator, 1000, [&](std::int64_t size) {
      sizes.push_back(size);
      // A thousand samples need 1 PiB, more than an address space has; few enough samples almost nothing.
      const std::int64_t bytes = size > 800 ? (std::int64_t{1} << 50) : size;
      at::empty({bytes}, at::TensorOptions(device()).dtype(at::kByte)).fill_(1);
    });
    EXPECT_EQ(sizes, (std::vector<std::int64_t>{1000, 900, 810, 729}));
    EXPECT_EQ(fits, 729);
  });
}

}  // namespace
}  // namespace lockstep
