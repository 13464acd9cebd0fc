#include "lockstep/optim/zero_redundancy_optimizer.hpp"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include <mutex>
#include <optional>

#include "lockstep/core/error.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/consolidated_optimizer.hpp"
#include "support/accelerators.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using optim::ZeroRedundancyOptimizer;
using testing::run_accelerators;
using testing::run_group;

/// Small enough that every layer is in a bucket alone or with few others.
const optim::ZeroRedundancyOptions kSmallBuckets = {.bucket_cap_mb = 1e-4};

torch::nn::Sequential layered_net() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::Tanh(), torch::nn::Linear(16, 5),
                               torch::nn::Tanh(), torch::nn::Linear(5, 2));
}

/// The same gradients on every rank, like after DistributedDataParallel.
void compute_gradients(torch::nn::Sequential& net, int step) {
  net->zero_grad();
  const at::Tensor input = at::linspace(-1, 1, 24).reshape({4, 6}) * (step + 1);
  net->forward(input).square().sum().backward();
}

std::vector<at::Tensor> trained(torch::nn::Sequential& net, torch::optim::Optimizer& optimizer, int steps) {
  for (int step = 0; step < steps; ++step) {
    compute_gradients(net, step);
    optimizer.step();
  }
  return net->parameters();
}

void expect_same(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others) {
  ASSERT_EQ(some.size(), others.size());
  for (std::size_t i = 0; i < some.size(); ++i) EXPECT_TRUE(torch::equal(some[i], others[i])) << i;
}

template <class Optimizer, class Options>
void expect_the_bits_of(const Options& options) {
  auto alone = layered_net();
  Optimizer reference(alone->parameters(), options);
  const auto expected = trained(alone, reference, 4);
  for (const int size : {1, 2, 3}) {
    run_group(size, [&](const ProcessGroup& group) {
      static std::mutex building;  // Ranks are threads that share the generator for initial values.
      std::unique_lock lock(building);
      auto net = layered_net();
      lock.unlock();
      ZeroRedundancyOptimizer optimizer(Optimizer(net->parameters(), options), group, kSmallBuckets);
      expect_same(trained(net, optimizer, 4), expected);
    });
  }
}

TEST(ZeroRedundancy, TheBitsOfTheOptimizerInside) {
  expect_the_bits_of<optim::AdamW>(optim::AdamWOptions{.lr = 0.01});
  expect_the_bits_of<optim::SGD>(optim::SgdOptions{.lr = 0.01, .momentum = 0.9});
  expect_the_bits_of<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01));
  expect_the_bits_of<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.01));
}

/// A net per rank, and its optimizer.
struct Divided {
  explicit Divided(const ProcessGroup& group)
      : net([] {
          static std::mutex building;
          const std::scoped_lock lock(building);
          return layered_net();
        }()),
        optimizer(optim::AdamW(net->parameters(), {.lr = 0.01}), group, kSmallBuckets) {}

  std::vector<NamedTensor> names() { return parallel::named_parameters_of(net); }

  torch::nn::Sequential net;
  ZeroRedundancyOptimizer optimizer;
};

std::int64_t elements_of(const TensorMap& tensors) {
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : tensors) elements += tensor.numel();
  return elements;
}

TEST(ZeroRedundancy, EachRankKeepsItsShareOfTheState) {
  run_group(3, [](const ProcessGroup& group) {
    Divided setup(group);
    trained(setup.net, setup.optimizer, 1);
    const auto own = optimizer_state(setup.optimizer.local_optimizer(), setup.names()).tensors;
    for (const auto& entry : setup.names()) {
      const bool is_own = setup.optimizer.owner_of(entry.tensor) == group.rank();
      EXPECT_EQ(own.contains("state." + entry.name + ".exp_avg"), is_own) << entry.name;
    }
    const auto whole = consolidate_optimizer_state(setup.optimizer, setup.names(), group.rank() == 0).tensors;
    EXPECT_EQ(whole.empty(), group.rank() != 0);
    // The 16 x 6 weights are the largest and alone; the 5 x 16 are next; the third gets the rest (28 values).
    EXPECT_LE(elements_of(own), 2 * 96 + 1);
    if (group.rank() == 0) {
      EXPECT_EQ(elements_of(whole), 2 * (96 + 16 + 80 + 5 + 10 + 2) + 6);
    }
  });
}

TEST(ZeroRedundancy, OptionsOfItsGroupsCount) {
  run_group(2, [](const ProcessGroup& group) {
    Divided setup(group);
    const auto before = setup.net->parameters()[0].clone();
    setup.optimizer.param_groups()[0].options().set_lr(0);
    trained(setup.net, setup.optimizer, 1);
    EXPECT_TRUE(torch::equal(setup.net->parameters()[0], before)) << "a rate of 0 on every rank";
    EXPECT_EQ(setup.optimizer.local_optimizer().param_groups()[0].params().size(), 6u);
  });
}

TEST(ZeroRedundancy, MistakesAreNamed) {
  run_group(2, [](const ProcessGroup& group) {
    torch::nn::Linear net(2, 2 + group.rank());
    EXPECT_THROWS(ZeroRedundancyOptimizer(optim::SGD(net->parameters()), group), CommunicationError, "rank 1",
                  "shape");
    torch::nn::Linear same(2, 2);
    EXPECT_THROWS(ZeroRedundancyOptimizer(torch::optim::LBFGS(same->parameters()), group), UsageError,
                  "LBFGS");
    ZeroRedundancyOptimizer optimizer(optim::SGD(same->parameters()), group);
    EXPECT_THROWS(optimizer.owner_of(net->weight), UsageError, "does not have");
    optimizer.add_param_group(torch::optim::OptimizerParamGroup({at::ones({1}).requires_grad_()}));
    EXPECT_THROWS(optimizer.step(), UsageError, "added");
  });
}

/// A training through Accelerator, with its optimizer sharded over the ranks or not.
class Job {
 public:
  Job(const Accelerator& accelerator, bool divided) : accelerator_(accelerator), divided_(divided) {
    static std::mutex building;
    const std::scoped_lock lock(building);
    net_ = layered_net();
  }

  void prepare() {
    optim::AdamW inner(net_->parameters(), {.lr = 0.01});
    if (divided_) {
      optimizer_ = std::make_unique<ZeroRedundancyOptimizer>(std::move(inner), accelerator_.process_group());
    } else {
      optimizer_ = std::make_unique<optim::AdamW>(std::move(inner));
    }
    scheduler_ = std::make_unique<optim::LrScheduler>(
        *optimizer_, optim::make_schedule({.name = "linear", .num_training_steps = 8}));
    ddp_.emplace(accelerator_.prepare(net_));
    accelerated_.emplace(accelerator_.prepare(*optimizer_));
    accelerated_scheduler_.emplace(accelerator_.prepare(*scheduler_));
  }

  /// The same samples in total, whatever the number of ranks.
  std::vector<at::Tensor> train(int from, int to) {
    const std::int64_t rows = 12 / accelerator_.num_processes();
    for (int step = from; step < to; ++step) {
      const at::Tensor all = (at::linspace(-1, 1, 72).reshape({12, 6}) * (step + 1)).sin();
      const at::Tensor mine = all.narrow(0, rows * accelerator_.process_index(), rows);
      accelerated_->zero_grad();
      accelerator_.backward((*ddp_)(mine).square().mean());
      accelerator_.clip_grad_norm_(*ddp_, 0.5);
      accelerated_->step();
      accelerated_scheduler_->step();
    }
    return net_->parameters();
  }

 private:
  Accelerator accelerator_;
  bool divided_;
  torch::nn::Sequential net_ = nullptr;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<optim::LrScheduler> scheduler_;
  std::optional<AcceleratedModel<torch::nn::Sequential>> ddp_;
  std::optional<AcceleratedOptimizer> accelerated_;
  std::optional<AcceleratedScheduler<optim::LrScheduler>> accelerated_scheduler_;
};

/// Trains 3 steps on `first` ranks, saves, and resumes for 3 steps on `second` ranks.
std::vector<at::Tensor> resumed(int first, bool first_divided, int second, bool second_divided) {
  const testing::TemporaryFolder folder;
  run_accelerators(first, [&](const Accelerator& accelerator) {
    Job job(accelerator, first_divided);
    job.prepare();
    job.train(0, 3);
    accelerator.save_state(folder.path() / "checkpoint-3", {.step = 3});
  });
  std::vector<at::Tensor> result;
  run_accelerators(second, [&](Accelerator& accelerator) {
    Job job(accelerator, second_divided);
    job.prepare();
    accelerator.load_state(folder.path() / "checkpoint-3");
    const auto parameters = job.train(3, 6);
    if (accelerator.is_main_process()) result = parameters;
  });
  return result;
}

TEST(ZeroRedundancy, CheckpointsHoldTheWholeState) {
  std::vector<at::Tensor> expected;
  run_accelerators(2, [&](const Accelerator& accelerator) {
    Job job(accelerator, false);
    job.prepare();
    const auto parameters = job.train(0, 6);
    if (accelerator.is_main_process()) expected = parameters;
  });
  expect_same(resumed(2, true, 2, true), expected);
  expect_same(resumed(2, true, 2, false), expected);
  expect_same(resumed(2, false, 2, true), expected);
  const auto other_sizes = resumed(3, true, 4, true);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(torch::allclose(other_sizes[i], expected[i], 1e-5, 1e-6)) << i;
}

}  // namespace
}  // namespace lockstep
