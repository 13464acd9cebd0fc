#include "training.hpp"

#include <torch/nn/functional/loss.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>

#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/program.hpp"
#include "lockstep/core/progress_bar.hpp"
#include "lockstep/models/script_model.hpp"
#include "lockstep/models/small_conv_net.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/train/checkpoints.hpp"
#include "tally.hpp"

namespace {

using lockstep::Accelerator;
using lockstep::Batch;
using lockstep::Checkpoints;
using lockstep::DataLoader;
using lockstep::ProgressBar;
using lockstep::models::ScriptModel;
using lockstep::models::SmallConvNet;
namespace F = torch::nn::functional;

/// How often the sums are read for the bar: reading waits for the device.
constexpr int kStepsBetweenReadings = 10;

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

/// What one epoch of training needs.
template <class Model>
struct Training {
  const Accelerator& accelerator;
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

/// Every sample once, whatever the number of ranks: each rank its own share, without padding.
template <class Model>
Tally evaluate(const Accelerator& accelerator, Model& model,
               const std::shared_ptr<const lockstep::Dataset>& dataset, const Options& options) {
  const torch::NoGradGuard no_grad;
  DataLoader batches(share_of(dataset, accelerator.process_index(), accelerator.num_processes()),
                     {.batch_size = options.batch_size, .num_workers = options.num_workers});
  lockstep::parallel::module_of(model).eval();
  Tally tally(accelerator);
  for (auto& batch : batches) {
    const Batch here = batch.to(accelerator.device());
    const at::Tensor logits = lockstep::parallel::call(model, here["image"]);
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

/// A program from Python is tried before it is trained: what it takes and returns is known to it alone.
ScriptModel load_model(const Images& images, const Options& options) {
  ScriptModel model(options.model);
  const torch::NoGradGuard no_grad;
  const auto misfit = [&](const std::string& why) {
    return lockstep::UsageError("--model " + options.model + " does not fit images [2, 1, " +
                                std::to_string(images.height) + ", " + std::to_string(images.width) +
                                "] of " + std::to_string(images.classes) + " classes: " + why);
  };
  at::Tensor scores;
  model.eval();
  try {
    scores = model.forward(torch::zeros({2, 1, images.height, images.width}));
  } catch (const c10::Error& error) {
    throw misfit(error.what_without_backtrace());
  } catch (const std::runtime_error& error) {
    throw misfit(error.what());
  }
  model.train();
  if (scores.sizes() == at::IntArrayRef({2, images.classes})) return model;
  throw misfit("it returns a tensor of " + std::to_string(scores.dim()) + " dimensions with " +
               std::to_string(scores.numel()) + " numbers for 2 images");
}

template <class Model>
int train_and_test(const Accelerator& accelerator, Model model, const Images& images,
                   const Options& options) {
  lockstep::optim::AdamW optimizer(lockstep::parallel::module_of(model).parameters(),
                                   {.lr = options.learning_rate, .weight_decay = options.weight_decay});
  DataLoader loader(images.train, {.batch_size = options.batch_size,
                                   .shuffle = true,
                                   .num_workers = options.num_workers,
                                   .seed = options.seed});
  auto [ddp, opt, batches] = accelerator.prepare(model, optimizer, loader);
  Tally tally(accelerator);
  accelerator.register_for_checkpointing("tally", tally);
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

int train_and_test(const Accelerator& accelerator, const Images& images, const Options& options) {
  accelerator.on_main_process([&] { check_output_folder(options.output_dir); });
  torch::manual_seed(options.seed);
  if (!options.model.empty())
    return train_and_test(accelerator, load_model(images, options), images, options);
  const SmallConvNet model(lockstep::models::SmallConvNetOptions{
      .height = images.height, .width = images.width, .classes = images.classes});
  return train_and_test(accelerator, model, images, options);
}
