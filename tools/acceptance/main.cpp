// `lockstep test` starts this program as every rank of a job. It checks that what training needs works on
// these hosts, with this number of ranks. Each check prints one line; the first failure ends the program with
// exit status 1.
#include <ATen/ATen.h>
#include <fmt/core.h>
#include <stdlib.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include <filesystem>
#include <iostream>
#include <utility>

#include "acceptance_options.hpp"
#include "core/commands.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/train/accelerator.hpp"

namespace {

using namespace lockstep;
namespace fs = std::filesystem;

void require(bool holds, const std::string& text) {
  if (!holds) throw Error(text);
}

void require_close(const at::Tensor& found, const at::Tensor& wanted, double tolerance,
                   const std::string& what) {
  const at::Tensor mine = found.detach().cpu();
  const at::Tensor theirs = wanted.detach().cpu();
  require(mine.sizes() == theirs.sizes(), what + " have another shape");
  if (at::allclose(mine, theirs, tolerance, tolerance)) return;
  throw Error(fmt::format("{} differ by up to {:.6f}", what, (mine - theirs).abs().max().item<double>()));
}

constexpr int kSteps = 4;
constexpr std::int64_t kGlobalBatch = 2520;  // Divisible by three micro-batches of up to 8 ranks.

torch::nn::Sequential make_network() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(4, 16), torch::nn::Tanh(), torch::nn::Linear(16, 1));
}

at::Tensor inputs() { return torch::linspace(-2, 2, kSteps * kGlobalBatch * 4).view({-1, 4}); }

at::Tensor losses_of(const at::Tensor& output, const at::Tensor& input) {
  return (output - input.sum(1, true).sin()).pow(2);
}

/// The weights after one process has trained on the global batches.
std::vector<at::Tensor> trained_alone() {
  auto network = make_network();
  torch::optim::SGD sgd(network->parameters(), 0.05);
  for (const auto& batch : inputs().split(kGlobalBatch)) {
    sgd.zero_grad();
    losses_of(network->forward(batch), batch).mean().backward();
    sgd.step();
  }
  return network->parameters();
}

/// Each global batch is split over the ranks, and each rank's part into micro-batches.
template <std::int64_t micro_batches, bool weighted>
void train_divided(Accelerator& accelerator) {
  auto network = make_network();
  torch::optim::SGD sgd(network->parameters(), 0.05);
  auto [model, optimizer] = accelerator.prepare(network, sgd);
  const std::int64_t share = kGlobalBatch / accelerator.num_processes();
  accelerator.set_gradient_accumulation_steps(micro_batches);
  for (const auto& global : inputs().split(kGlobalBatch)) {
    const at::Tensor mine = global.narrow(0, share * accelerator.process_index(), share);
    for (const auto& part : mine.chunk(micro_batches)) {
      const auto step = accelerator.accumulate();
      const at::Tensor input = part.to(accelerator.device());
      const at::Tensor losses = losses_of(model(input), input);
      if (weighted) {
        accelerator.backward(losses.sum(), static_cast<double>(losses.numel()));
      } else {
        accelerator.backward(losses.mean());
      }
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  accelerator.set_gradient_accumulation_steps(1);
  accelerator.free_memory();
  const auto wanted = trained_alone();
  const auto found = network->parameters();
  for (std::size_t i = 0; i < found.size(); ++i)
    require_close(found[i], wanted[i], 1e-4, "the weights and those of one process");
}

void schedules_by_steps(Accelerator& accelerator) {
  auto network = make_network();
  torch::optim::SGD sgd(network->parameters(), 1.0);
  optim::LrScheduler linear(sgd, {.name = "linear", .num_training_steps = 10});
  auto [model, optimizer, scheduler] = accelerator.prepare(network, sgd, linear);
  const at::Tensor input = inputs().narrow(0, 0, 8).to(accelerator.device());
  for (int i = 0; i < 4; ++i) {
    accelerator.backward(losses_of(model(input), input).mean());
    optimizer.step();
    scheduler.step();
  }
  accelerator.free_memory();
  require(std::abs(linear.last_lr()[0] - 0.6) < 1e-12,
          "the learning rate did not follow the optimizer's steps");
}

void computes_in_half_width(Accelerator& accelerator) {
  const Autocast cast(accelerator.device(), MixedPrecision::bf16);
  const at::Tensor ones = torch::ones({4, 4}, accelerator.device());
  const at::Tensor product = torch::mm(ones, ones);
  require(product.scalar_type() == torch::kBFloat16, "autocast did not take effect");
  require_close(product.to(torch::kFloat), torch::full({4, 4}, 4.0), 0, "products in bfloat16");
}

/// A folder created by rank 0, which removes it at the end.
class SharedFolder {
 public:
  explicit SharedFolder(Accelerator& accelerator) : is_main_(accelerator.is_main_process()) {
    path_ = accelerator.on_main_process([] {
      std::string name = (fs::temp_directory_path() / "lockstep-test-XXXXXX").string();
      require(::mkdtemp(name.data()) != nullptr,
              "cannot make a folder in " + fs::temp_directory_path().string());
      return name;
    });
  }
  ~SharedFolder() {
    std::error_code ignored;
    if (is_main_) fs::remove_all(path_, ignored);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  bool is_main_;
  fs::path path_;
};

struct Training {
  explicit Training(Accelerator& accelerator)
      : network(torch::nn::Linear(3, 2)),
        adam(network->parameters()),
        prepared(accelerator.prepare(network, adam)) {}
  void step(Accelerator& accelerator) {
    for (auto& parameter : network->parameters())
      parameter.mutable_grad() =
          torch::arange(parameter.numel(), accelerator.device()).view(parameter.sizes()).to(torch::kFloat);
    adam.step();
  }

  torch::nn::Linear network;
  torch::optim::Adam adam;
  /// Checkpoints need it as long as the training goes on.
  decltype(std::declval<Accelerator&>().prepare(network, adam)) prepared;
};

template <bool asynchronous>
void save_and_go_on(Accelerator& accelerator) {
  const SharedFolder folder(accelerator);
  Training training(accelerator);
  training.step(accelerator);
  accelerator.save_state(folder / "state", {.step = 1}, {.asynchronous = asynchronous});
  training.step(accelerator);
  const at::Tensor wanted = training.network->weight.detach().clone();
  training.step(accelerator);
  require(accelerator.load_state(folder / "state").info.step == 1, "the checkpoint is of another step");
  training.step(accelerator);
  require(torch::equal(training.network->weight, wanted), "training continued differently after loading");
  accelerator.free_memory();
}

void models_come_back(Accelerator& accelerator) {
  const SharedFolder folder(accelerator);
  torch::nn::Linear network(8, 8);
  auto model = accelerator.prepare(network);
  for (const std::uint64_t largest : {std::uint64_t{100}, kMaxShardBytes}) {
    const at::Tensor wanted = network->weight.detach().clone();
    accelerator.save_model(model, folder / "model", largest);
    torch::NoGradGuard no_grad;
    network->weight.zero_();
    accelerator.load_model(model, folder / "model");
    require(torch::equal(network->weight, wanted), "a model came back with other weights");
  }
  accelerator.free_memory();
}

/// Rank 0 writes to a new namespace of the store before the other ranks read it.
void main_goes_first(Accelerator& accelerator) {
  const auto store = accelerator.process_group().new_namespace();
  accelerator.main_process_first([&] {
    if (accelerator.is_main_process()) store.set("prepared", "yes");
    require(store.contains("prepared"), "a rank ran before the main process had finished");
  });
}

void results_reach_all(Accelerator& accelerator) {
  require(accelerator.on_main_process([] { return std::string("found"); }) == "found", "a text was lost");
  const auto there = accelerator.on_last_process([&] { return accelerator.process_index(); });
  require(there.has_value() == accelerator.is_last_process(), "on_last_process ran on the wrong ranks");
}

void errors_reach_all(Accelerator& accelerator) {
  bool caught = false;
  try {
    accelerator.on_main_process([] { throw Error("on purpose"); });
  } catch (const Error& error) {
    caught = std::string(error.what()).find("on purpose") != std::string::npos;
  }
  require(caught, "an exception of the main process did not reach this rank");
}

void triggers_are_agreed(Accelerator& accelerator) {
  require(!accelerator.check_trigger(), "a trigger that nobody has set");
  if (accelerator.is_last_process()) accelerator.set_trigger();
  require(accelerator.check_trigger(), "the last rank's trigger was not seen");
  require(!accelerator.check_trigger(), "a trigger was seen twice");
}

/// 1 to W on rank 0, W + 1 to 2 W on rank 1, and so on.
at::Tensor numbers_of(Accelerator& accelerator) {
  const int size = accelerator.num_processes();
  return at::arange(1, size + 1, at::TensorOptions(at::kFloat).device(accelerator.device())) +
         size * accelerator.process_index();
}

void gathers_in_order(Accelerator& accelerator) {
  const int size = accelerator.num_processes();
  require_close(accelerator.gather(numbers_of(accelerator)), at::arange(1, size * size + 1, at::kFloat), 0,
                "gathered tensors");
}

void gathers_uneven_rows(Accelerator& accelerator) {
  const int rank = accelerator.process_index();
  const at::Tensor rows =
      at::full({rank + 1, 2}, rank, at::TensorOptions(at::kFloat).device(accelerator.device()));
  const at::Tensor all = accelerator.gather(rows).cpu();
  const std::int64_t size = accelerator.num_processes();
  require(all.size(0) == size * (size + 1) / 2, "rows of different ranks were lost");
  require(all[-1][0].item<double>() == static_cast<double>(size - 1), "rows are not in rank order");
}

void reduces(Accelerator& accelerator) {
  const int size = accelerator.num_processes();
  const at::Tensor wanted = (at::arange(1, size + 1, at::kFloat) + size * (size - 1) / 2.0) * size;
  require_close(accelerator.reduce(numbers_of(accelerator)), wanted, 0, "sums over all ranks");
}

/// An epoch contains every sample, distributed over the ranks.
void shards_the_data(Accelerator& accelerator) {
  for (const std::int64_t samples : {24, 7, 97}) {
    const auto data = std::make_shared<TensorDataset>(Batch{{"number", at::arange(samples)}});
    auto loader = accelerator.prepare(DataLoader(data, {.batch_size = 3, .shuffle = true}));
    std::vector<at::Tensor> seen;
    for (auto& batch : loader) seen.push_back(batch["number"]);
    const at::Tensor all = accelerator.gather(at::cat(seen)).cpu();
    const at::Tensor unique = std::get<0>(at::_unique(all));
    require(unique.size(0) == samples,
            fmt::format("an epoch of {} samples had only {} of them", samples, unique.size(0)));
  }
  accelerator.free_memory();
}

/// A property that must hold on every rank. *Collective*. Throws Error that says what is wrong.
struct Check {
  const char* name;
  void (*run)(Accelerator& accelerator);
};

constexpr Check kChecks[] = {{"the main process goes first", main_goes_first},
                             {"results of one rank reach all", results_reach_all},
                             {"errors of one rank reach all", errors_reach_all},
                             {"triggers are agreed", triggers_are_agreed},
                             {"gather keeps the order of ranks", gathers_in_order},
                             {"gather takes different numbers of rows", gathers_uneven_rows},
                             {"reduce adds up", reduces},
                             {"loaders divide the data", shards_the_data},
                             {"many ranks train as one", train_divided<1, false>},
                             {"micro-batches add up to a batch", train_divided<3, false>},
                             {"weighted losses do not depend on the division", train_divided<2, true>},
                             {"schedules count optimizer steps", schedules_by_steps},
                             {"autocast computes in bfloat16", computes_in_half_width},
                             {"a checkpoint brings training back", save_and_go_on<false>},
                             {"so does one that is written while training continues", save_and_go_on<true>},
                             {"models are saved and loaded, in parts too", models_come_back}};

void run_check(Accelerator& accelerator, const Check& check) {
  try {
    accelerator.fail_together([&] {
      check.run(accelerator);
      accelerator.wait_for_everyone_at(check.name);
    });
  } catch (const std::exception& error) {
    std::cout << fmt::format("FAILED  {}, on rank {}: {}\n", check.name, accelerator.process_index(),
                             error.what())
              << std::flush;
    throw;
  }
  accelerator.print("ok      ", check.name);
}

int run(const std::vector<std::string>& words) {
  const auto parsed = parse_or_help(acceptance::option_table(), words, std::cout);
  if (!parsed) return 0;
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(parsed->options.timeout * 1000));
  Accelerator accelerator({.device = parsed->options.device, .timeout = timeout});
  for (const auto& check : kChecks) run_check(accelerator, check);
  accelerator.print("passed: ", std::size(kChecks), " checks with ", accelerator.num_processes(),
                    " rank(s) on ", accelerator.device().str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("lockstep-test", [&] { return run({argv + std::min(argc, 1), argv + argc}); });
}
