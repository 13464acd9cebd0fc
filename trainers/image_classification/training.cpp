#include "training.hpp"

#include <fmt/core.h>
#include <torch/nn/functional/loss.h>

#include <filesystem>
#include <string>
#include <vector>

#include "epoch_report.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/train/callbacks.hpp"
#include "lockstep/train/trainer.hpp"
#include "models.hpp"

#ifdef LOCKSTEP_MODEL_FOLDERS
#include "options/base_model.hpp"
#endif

namespace {

using lockstep::Accelerator;
using lockstep::Batch;

/// Prints what users of the model must apply to their images.
void print_statistics(Accelerator& accelerator, const ChannelStatistics& statistics) {
  std::string text;
  for (std::size_t channel = 0; channel < statistics.mean.size(); ++channel) {
    text += fmt::format("{}{:.4f} / {:.4f}", channel == 0 ? "" : ", ", statistics.mean[channel],
                        statistics.std[channel]);
  }
  if (!text.empty()) accelerator.print("normalized by mean / standard deviation: ", text);
}

/// Creates the folder and a file in it, so that an unsuitable folder is reported now instead of after
/// training.
void check_output_folder(const std::filesystem::path& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure || !std::filesystem::is_directory(folder)) {
    throw lockstep::UsageError(fmt::format("--output-dir {} cannot be made a folder: {}", folder.string(),
                                           failure ? failure.message() : "there is a file of that name"));
  }
  const lockstep::AtomicFile trial(folder / lockstep::kModelFileName);
}

/// The last line: the command that draws what happened.
void print_report_command(const Accelerator& accelerator, const Options& options) {
  lockstep::TrainingArguments of_model = options;
  of_model.output_dir = options.model_dir;
  std::string command = lockstep::report_command(of_model);
  // Checkpoints may be elsewhere.
  if (command.empty()) command = lockstep::report_command(options);
  if (!command.empty()) accelerator.print("report: ", command);
}

/// Each rank reports the images that its own workers could not read.
void print_bad_images(const Accelerator& accelerator, const Images& images) {
  for (const auto& folder : images.folders) {
    const auto bad = folder->bad_images();
    if (bad.empty()) continue;
    std::string text = fmt::format("rank {}: skipped {} image(s) that cannot be read:\n",
                                   accelerator.process_index(), bad.size());
    for (const auto& [index, what] : bad) text += fmt::format("  {}\n", what);
    fmt::print(stderr, "{}", text);
  }
}

class ImageTrainer final : public lockstep::Trainer {
 public:
  ImageTrainer(const Accelerator& accelerator, const Options& options, lockstep::TrainerComponents parts,
               std::shared_ptr<EpochReport> report)
      : Trainer(accelerator, options, std::move(parts)), report_(std::move(report)) {
    // Removes the Trainer's own progress output: the report has a bar and lines.
    remove_callback(*callbacks().back());
  }

  lockstep::Loss compute_loss(const Batch& outputs, const Batch& batch) override {
    namespace F = torch::nn::functional;
    const auto smoothing = F::CrossEntropyFuncOptions().label_smoothing(args().label_smoothing_factor);
    const at::Tensor& label = batch["label"];
    const at::Tensor loss = F::cross_entropy(outputs["logits"], label, smoothing);
    // For an image mixed from two, the class with the larger share counts.
    const at::Tensor target = label.dim() == 2 ? label.argmax(1) : label;
    if (at::GradMode::is_enabled()) report_->tally().add(outputs["logits"], target, loss);
    return {loss};
  }

  /// Evaluates the model that is saved: running means of batch normalization that differ between ranks become
  /// rank 0's, as in the next training step.
  lockstep::LogValues evaluate(std::shared_ptr<const lockstep::Dataset> dataset,
                               const std::string& prefix) override {
    const at::NoGradGuard no_grad;
    for (const auto& buffer : model().buffers())
      buffer.tensor.copy_(accelerator().broadcast(buffer.tensor.to(accelerator().device())));
    return Trainer::evaluate(std::move(dataset), prefix);
  }

  /// All parameters have weight decay.
  bool takes_weight_decay(const std::string& /*name*/) override { return true; }

 private:
  std::shared_ptr<EpochReport> report_;
};

template <class Model>
lockstep::TrainerComponents components(const Model& model, const Images& images, const Options& options,
                                       const std::shared_ptr<EpochReport>& report) {
  lockstep::TrainerComponents parts{
      .model = lockstep::wrap_model(model,
                                    [images](auto& network, const Batch& batch) {
                                      return Batch{{"logits", network(model_input(images, batch["image"]))}};
                                    }),
      .train_dataset = images.train,
      .eval_dataset = images.validation,
      .compute_metrics = {lockstep::metrics::Accuracy(),
                          [](const Batch& outputs, const Batch& batch) {
                            return std::pair(outputs["logits"], batch["label"]);
                          }},
      .callbacks = {report}};
  if (options.early_stopping_patience > 0) {
    parts.callbacks.push_back(
        std::make_shared<lockstep::EarlyStoppingCallback>(options.early_stopping_patience));
  }
  if (options.ema_decay > 0)
    parts.callbacks.push_back(std::make_shared<lockstep::EmaCallback>(options.ema_decay));
  return parts;
}

template <class Model>
int train_and_test(Accelerator& accelerator, const Model& model, const Images& images,
                   const Options& options) {
  const auto report = std::make_shared<EpochReport>(accelerator, images.train->size());
  ImageTrainer trainer(accelerator, options, components(model, images, options, report), report);
#ifdef LOCKSTEP_MODEL_FOLDERS
  const bool is_named = model_kind(options) == ModelKind::small || model_kind(options) == ModelKind::resnet;
  trainer.add_callback(program_options::base_model_callback(
      {{"--model", is_named ? "" : options.model}, {"--weights", options.weights}},
      {options.output_dir, options.model_dir}));
#endif
  print_statistics(accelerator, images.statistics);
  accelerator.print("training on ", images.train->size(), " images, validating on ",
                    images.validation->size(), ", testing on ", images.test->size(), "; ",
                    accelerator.num_processes(), " rank(s) on ", accelerator.device());
  if (trainer.train().preempted) return lockstep::kPreemptedExitCode;
  const lockstep::LogEntry test{trainer.evaluate(images.test, "test")};
  accelerator.print(fmt::format("test accuracy {:.4f}, test loss {:.4f}", *test.find("test_accuracy"),
                                *test.find("test_loss")));
  print_bad_images(accelerator, images);
  if (model_kind(options) == ModelKind::folder) {
    // Fully sharded weights are gathered until this ends.
    const auto whole = trainer.model().full_parameters(accelerator);
    accelerator.on_main_process([&] { save_folder(model, images, options); });
  } else {
    trainer.save_model(options.model_dir);
  }
  accelerator.print("saved ", options.model_dir, "/", lockstep::kModelFileName);
  if (accelerator.is_main_process()) print_report_command(accelerator, options);
  accelerator.wait_for_everyone();
  return 0;
}

}  // namespace

int train_and_test(Accelerator& accelerator, const Images& images, const Options& options) {
  accelerator.on_main_process([&] { check_output_folder(options.model_dir); });
  torch::manual_seed(options.seed);
  return with_model(accelerator, images, options,
                    [&](const auto& model) { return train_and_test(accelerator, model, images, options); });
}
