#include "training.hpp"

#include <torch/nn/functional/loss.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>

#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/progress_bar.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/train/checkpoints.hpp"
#include "models.hpp"
#include "tally.hpp"

namespace {

using lockstep::Accelerator;
using lockstep::Batch;
using lockstep::Checkpoints;
using lockstep::DataLoader;
using lockstep::ProgressBar;
namespace F = torch::nn::functional;

/// How often the sums are read for the bar: reading waits for the device.
constexpr int kStepsBetweenReadings = 10;

std::string to_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4f", value);
  return text;
}

/// Shows how the epoch is going; throws when it is going nowhere.
void show(ProgressBar& bar, const Tally& tally, Accelerator& accelerator) {
  const double loss = tally.loss();
  if (!std::isfinite(loss)) {
    throw lockstep::Error("rank " + std::to_string(accelerator.process_index()) + ": the loss is " +
                          to_text(loss) + ": the training has diverged; try a smaller --learning-rate");
  }
  bar.set_metric("loss", loss);
  bar.set_metric("accuracy", tally.accuracy());
}

/// Who uses the model has to do the same to his images.
void print_statistics(Accelerator& accelerator, const ChannelStatistics& statistics) {
  std::string text;
  for (std::size_t channel = 0; channel < statistics.mean.size(); ++channel) {
    text += (channel == 0 ? "" : ", ") + to_text(statistics.mean[channel]) + " / " +
            to_text(statistics.std[channel]);
  }
  if (!text.empty()) accelerator.print("normalized by mean / standard deviation: ", text);
}

/// The learning rate falls linearly to 0 over the whole training.
void set_learning_rate(torch::optim::Optimizer& optimizer, const Options& options, double done) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(options.learning_rate * (1.0 - done));
}

/// What one epoch of training needs.
template <class Model>
struct Training {
  Accelerator& accelerator;
  const Options& options;
  Model& model;
  lockstep::AcceleratedOptimizer& optimizer;
  DataLoader& batches;
  Checkpoints& checkpoints;
  Tally& tally;
};

template <class Model>
void train_step(const Training<Model>& training, const Batch& batch) {
  const std::int64_t steps = training.options.epochs * training.batches.size();
  const double done = static_cast<double>(training.checkpoints.step()) / static_cast<double>(steps);
  set_learning_rate(training.optimizer.optimizer(), training.options, done);
  const at::Tensor logits = training.model(batch["image"]);
  const at::Tensor loss = F::cross_entropy(logits, batch["label"]);
  training.optimizer.zero_grad();
  training.accelerator.backward(loss);
  training.optimizer.step();
  training.tally.add(logits, batch["label"], loss);
}

/// Trains what is left of the loader's epoch; true when the job is to stop now.
template <class Model>
bool train_epoch(const Training<Model>& training) {
  const auto& [accelerator, options, model, optimizer, batches, checkpoints, tally] = training;
  if (batches.position() == 0) tally.clear();
  ProgressBar bar(accelerator.world(), {.description = "epoch " + std::to_string(batches.epoch() + 1),
                                        .total = static_cast<std::uint64_t>(batches.size()),
                                        .initial = static_cast<std::uint64_t>(batches.position()),
                                        .enabled = options.progress});
  for (auto& batch : batches) {
    train_step(training, batch);
    const std::int64_t step = batches.position();
    if (step % kStepsBetweenReadings == 0 || step == batches.size()) show(bar, tally, accelerator);
    bar.advance();
    if (checkpoints.after_step()) return true;
  }
  return false;
}

/// What is evaluated is what is saved: running means of batch normalization that ranks have of their own
/// become rank 0's, as the next step of the training makes them too.
template <class Model>
void take_buffers_of_main(Accelerator& accelerator, Model& model) {
  for (const auto& [name, tensor] : lockstep::parallel::named_buffers_of(model))
    tensor.copy_(accelerator.broadcast(tensor));
}

/// On this rank alone, in what numbers a prepared model would compute.
template <class Model>
at::Tensor scores_of(Accelerator& accelerator, Model& model, const at::Tensor& images) {
  const auto cast = accelerator.autocast();
  return lockstep::parallel::call(model, images).to(torch::kFloat);
}

/// Every sample once, whatever the number of ranks: each rank its own share, without padding.
template <class Model>
Tally evaluate(Accelerator& accelerator, Model& model,
               const std::shared_ptr<const lockstep::Dataset>& dataset, const Options& options) {
  const torch::NoGradGuard no_grad;
  DataLoader batches(share_of(dataset, accelerator.process_index(), accelerator.num_processes()),
                     {.batch_size = options.batch_size, .num_workers = options.num_workers});
  take_buffers_of_main(accelerator, model);
  lockstep::parallel::module_of(model).eval();
  Tally tally(accelerator);
  for (auto& batch : batches) {
    const Batch here = batch.to(accelerator.device());
    const at::Tensor logits = scores_of(accelerator, model, here["image"]);
    tally.add(logits, here["label"], F::cross_entropy(logits, here["label"]));
  }
  lockstep::parallel::module_of(model).train();
  return tally.of_all_ranks();
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

template <class Model>
int train_and_test(Accelerator& accelerator, Model model, const Images& images, const Options& options) {
  lockstep::optim::AdamW optimizer(lockstep::parallel::module_of(model).parameters(),
                                   {.lr = options.learning_rate, .weight_decay = options.weight_decay});
  DataLoader loader(images.train, {.batch_size = options.batch_size,
                                   .shuffle = true,
                                   .num_workers = options.num_workers,
                                   .seed = options.seed});
  auto [ddp, opt, batches] = accelerator.prepare(model, optimizer, loader);
  Tally tally(accelerator);
  accelerator.register_for_checkpointing("tally", tally);
  print_statistics(accelerator, images.statistics);
  accelerator.print("training on ", images.train->size(), " images, validating on ",
                    images.validation->size(), ", testing on ", images.test->size(), "; ",
                    accelerator.num_processes(), " rank(s) on ", accelerator.device());

  Checkpoints checkpoints(accelerator, {.folder = options.checkpoint_dir,
                                        .every = options.checkpoint_every,
                                        .keep_last = options.keep_last,
                                        .resume = options.resume});
  checkpoints.resume();
  const Training training{accelerator, options, ddp, opt, batches, checkpoints, tally};
  while (batches.epoch() < options.epochs) {
    const std::int64_t epoch = batches.epoch() + 1;
    if (train_epoch(training)) return lockstep::kPreemptedExitCode;
    const Tally train = tally.of_all_ranks();
    const Tally validation = evaluate(accelerator, model, images.validation, options);
    accelerator.print("epoch ", epoch, ": loss ", to_text(train.loss()), ", accuracy ",
                      to_text(train.accuracy()), ", validation loss ", to_text(validation.loss()),
                      ", validation accuracy ", to_text(validation.accuracy()));
  }
  checkpoints.save();
  const Tally test = evaluate(accelerator, model, images.test, options);
  accelerator.print("test accuracy ", to_text(test.accuracy()), ", test loss ", to_text(test.loss()));
  accelerator.save_model(ddp, options.output_dir);
  accelerator.print("saved ", options.output_dir, "/", lockstep::kModelFileName);
  accelerator.wait_for_everyone();
  return 0;
}

}  // namespace

int train_and_test(Accelerator& accelerator, const Images& images, const Options& options) {
  accelerator.on_main_process([&] { check_output_folder(options.output_dir); });
  torch::manual_seed(options.seed);
  return with_model(accelerator, images, options,
                    [&](const auto& model) { return train_and_test(accelerator, model, images, options); });
}
