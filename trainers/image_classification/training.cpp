#include "training.hpp"

#include <torch/nn/functional/loss.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>

#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/progress_bar.hpp"
#include "lockstep/models/small_conv_net.hpp"

namespace {

using lockstep::Accelerator;
using lockstep::Batch;
using lockstep::DataLoader;
using lockstep::ProgressBar;
using lockstep::models::SmallConvNet;
namespace F = torch::nn::functional;

/// How often the sums are read for the bar: reading waits for the device.
constexpr int kStepsBetweenReadings = 10;

/// Sums over samples, from which means over any number of ranks are exact. They stay on the device until they
/// are read.
class Tally {
 public:
  explicit Tally(const at::Device& device)
      : sums_(torch::zeros({3}, at::TensorOptions(device).dtype(torch::kDouble))) {}

  void add(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& mean_loss) {
    const torch::NoGradGuard no_grad;
    const auto rows = static_cast<double>(labels.size(0));
    sums_[kSamples] += rows;
    sums_[kLoss] += mean_loss * rows;
    sums_[kCorrect] += (logits.argmax(1) == labels).sum();
  }

  /// Adds up the sums of all ranks. *Collective*.
  void gather_from_all_ranks(const Accelerator& accelerator) { sums_ = accelerator.reduce(sums_); }

  double loss() const { return (sums_[kLoss] / sums_[kSamples]).item<double>(); }
  double accuracy() const { return (sums_[kCorrect] / sums_[kSamples]).item<double>(); }

 private:
  enum { kSamples, kLoss, kCorrect };
  at::Tensor sums_;
};

std::string to_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4f", value);
  return text;
}

/// Shows how the epoch is going; throws when it is going nowhere.
void show(ProgressBar& bar, const Tally& tally, const Accelerator& accelerator) {
  const double loss = tally.loss();
  if (!std::isfinite(loss)) {
    throw lockstep::Error("rank " + std::to_string(accelerator.process_index()) + ": the loss is " +
                          to_text(loss) + ": the training has diverged; try a smaller --learning-rate");
  }
  bar.set_metric("loss", loss);
  bar.set_metric("accuracy", tally.accuracy());
}

/// The learning rate falls linearly to 0 over the whole training.
void set_learning_rate(torch::optim::Optimizer& optimizer, const Options& options, double done) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(options.learning_rate * (1.0 - done));
}

template <class Model>
Tally train_epoch(const Accelerator& accelerator, Model& model, lockstep::AcceleratedOptimizer& optimizer,
                  DataLoader& batches, const Options& options, ProgressBar& bar) {
  const std::int64_t steps = batches.size();
  Tally tally(accelerator.device());
  for (auto& batch : batches) {
    const std::int64_t step = batches.position();
    const double done = static_cast<double>(batches.epoch() * steps + step - 1);
    set_learning_rate(optimizer.optimizer(), options, done / static_cast<double>(options.epochs * steps));
    const at::Tensor logits = model(batch["image"]);
    const at::Tensor loss = F::cross_entropy(logits, batch["label"]);
    optimizer.zero_grad();
    accelerator.backward(loss);
    optimizer.step();
    tally.add(logits, batch["label"], loss);
    if (step % kStepsBetweenReadings == 0 || step == steps) show(bar, tally, accelerator);
    bar.advance();
  }
  tally.gather_from_all_ranks(accelerator);
  return tally;
}

/// Every sample once, whatever the number of ranks: each rank its own share, without padding.
Tally evaluate(const Accelerator& accelerator, SmallConvNet& model,
               const std::shared_ptr<const lockstep::Dataset>& dataset, const Options& options) {
  const torch::NoGradGuard no_grad;
  DataLoader batches(share_of(dataset, accelerator.process_index(), accelerator.num_processes()),
                     {.batch_size = options.batch_size, .num_workers = options.num_workers});
  model->eval();
  Tally tally(accelerator.device());
  for (auto& batch : batches) {
    const Batch here = batch.to(accelerator.device());
    const at::Tensor logits = model(here["image"]);
    tally.add(logits, here["label"], F::cross_entropy(logits, here["label"]));
  }
  model->train();
  tally.gather_from_all_ranks(accelerator);
  return tally;
}

/// Makes the folder and opens a file in it: better refused now than after the training.
void check_output_folder(const std::filesystem::path& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure || !std::filesystem::is_directory(folder)) {
    throw lockstep::UsageError("--output-dir " + folder.string() + " cannot be made a folder: " +
                               (failure ? failure.message() : "there is a file of that name"));
  }
  const lockstep::AtomicFile trial(folder / lockstep::kModelFileName);
}

}  // namespace

void train_and_test(const Accelerator& accelerator, const Images& images, const Options& options) {
  accelerator.on_main_process([&] { check_output_folder(options.output_dir); });
  torch::manual_seed(options.seed);
  SmallConvNet model(lockstep::models::SmallConvNetOptions{
      .height = images.height, .width = images.width, .classes = images.classes});
  torch::optim::AdamW optimizer(
      model->parameters(),
      torch::optim::AdamWOptions(options.learning_rate).weight_decay(options.weight_decay));
  DataLoader loader(images.train, {.batch_size = options.batch_size,
                                   .shuffle = true,
                                   .num_workers = options.num_workers,
                                   .seed = options.seed});
  auto [ddp, opt, batches] = accelerator.prepare(model, optimizer, loader);
  accelerator.print("training on ", images.train->size(), " images, validating on ",
                    images.validation->size(), ", testing on ", images.test->size(), "; ",
                    accelerator.num_processes(), " rank(s) on ", accelerator.device());

  for (std::int64_t epoch = 1; epoch <= options.epochs; ++epoch) {
    ProgressBar bar(accelerator.world(), {.description = "epoch " + std::to_string(epoch),
                                          .total = static_cast<std::uint64_t>(batches.size()),
                                          .enabled = options.progress});
    const Tally train = train_epoch(accelerator, ddp, opt, batches, options, bar);
    bar.close();
    const Tally validation = evaluate(accelerator, model, images.validation, options);
    accelerator.print("epoch ", epoch, ": loss ", to_text(train.loss()), ", accuracy ",
                      to_text(train.accuracy()), ", validation loss ", to_text(validation.loss()),
                      ", validation accuracy ", to_text(validation.accuracy()));
  }
  const Tally test = evaluate(accelerator, model, images.test, options);
  accelerator.print("test accuracy ", to_text(test.accuracy()), ", test loss ", to_text(test.loss()));
  accelerator.save_model(ddp, options.output_dir);
  accelerator.print("saved ", options.output_dir, "/", lockstep::kModelFileName);
  accelerator.wait_for_everyone();
}
