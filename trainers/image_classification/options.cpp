#include "options.hpp"

#include "lockstep/core/error.hpp"
#include "options/dependent_options.hpp"

using lockstep::at_least;
using lockstep::at_most;
using lockstep::less_than;
using lockstep::more_than;
using lockstep::not_empty;
using lockstep::one_of;

namespace {

/// A field of the arguments as one of the program's options: another name for its flag.
template <class Field>
Field Options::*same(Field lockstep::TrainingArguments::*field) {
  return field;
}

/// More steps than any training has: only its end has a checkpoint.
constexpr std::int64_t kNever = std::int64_t{1} << 40;

}  // namespace

Options::Options() {
  output_dir = "out/digits";
  num_train_epochs = 15;
  per_device_train_batch_size = 16;
  learning_rate = 3e-3;
  weight_decay = 1e-2;
  max_grad_norm = 0;
  logging_strategy = lockstep::IntervalStrategy::epoch;
  report_to = {"jsonl"};
  eval_strategy = lockstep::IntervalStrategy::epoch;
  save_total_limit = 2;
  dataloader_num_workers = 1;
}

const lockstep::OptionTable<Options>& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>("image_classification",
                                     "Trains a small convolutional network or a ResNet on images (MNIST's "
                                     "format, CIFAR-10's, image folders, or the included digits) and saves "
                                     "it. Runs alone, or on many ranks under 'lockstep run' or torchrun.")
          .grammar({.environment_prefix = "", .config_option = "config"})
          .section("data")
          .add("data", &Options::data,
               "Folder with one file *-images-idx3-ubyte and one *-labels-idx1-ubyte; with two such pairs, "
               "*train-... and *t10k-..., as in MNIST; with data_batch_*.bin and test_batch.bin of "
               "CIFAR-10's binary version; or with folders train and val (and test), each with a folder of "
               "JPEG and PNG files per class. Default: the handwritten digits that come with Lockstep.")
          .add("validation-fraction", &Options::validation_fraction,
               "Fraction of the images for validation after each epoch; of the training images if there is a "
               "test set.",
               more_than(0.0), less_than(1.0))
          .add("test-fraction", &Options::test_fraction,
               "Fraction of the images for the test at the end (default: 0.2). Not for data with a test set.",
               more_than(0.0), less_than(1.0))
          .add("num-workers", same(&Options::dataloader_num_workers),
               "Threads that prefetch batches; 0 reads between the steps.", at_least(0))
          .section("images")
          .add("resize", &Options::resize,
               "Resize images to this many pixels in height and width; 0: keep their size. For images in "
               "folders, the size of the crop; 0: 224. With a model's folder, 0: the size that it names.",
               at_least(0))
          .add("random-crop-padding", &Options::random_crop_padding,
               "In training, pad images with this many black pixels and crop a random region of the original "
               "size.",
               at_least(0))
          .add("horizontal-flip", &Options::horizontal_flip,
               "In training, flip half of the images at random.")
          .add(
              "normalize", &Options::normalize,
              "Subtract each channel's mean and divide by its standard deviation, both computed from the "
              "training images and printed. For images in folders, ImageNet's. A model's folder has its own.")
          .add("color-jitter", &Options::color_jitter,
               "In training on images in folders, change brightness, contrast and saturation at random by up "
               "to this fraction.",
               at_least(0.0))
          .add("random-erasing", &Options::random_erasing,
               "In training on images in folders, probability of erasing a rectangle of an image.",
               at_least(0.0), at_most(1.0))
          .add("mixup-alpha", &Options::mixup_alpha,
               "In training on images in folders, mix the images of a batch, and their labels, with a weight "
               "from Beta(alpha, alpha).",
               at_least(0.0))
          .add("cutmix-alpha", &Options::cutmix_alpha,
               "Likewise, replace a rectangle of one image by another's. With both, each applies to half of "
               "the batches.",
               at_least(0.0))
          .add("skip-bad", &Options::skip_bad,
               "Skip images in folders that cannot be read, and list them at the end. Otherwise the first "
               "one ends the training.")
          .section("model")
          .add("model", &Options::model,
               "small: a small convolutional network (the default); resnet18 or resnet50: torchvision's, but "
               "with a first convolution of 3x3 and no pooling after it for images of up to 64 pixels; the "
               "folder of a vision model of the hub (ViT, DeiT, DINOv2, ConvNeXt), whose classifier is new "
               "if it has other classes; or the path of a TorchScript file from Python "
               "(torch.jit.script(net).save), which takes images "
               "[rows, channels, height, width] and returns logits [rows, classes].")
          .add("weights", &Options::weights,
               "Safetensors file with initial weights, from this program or from torchvision's state "
               "dictionary. A last layer with another number of classes is replaced by a new one. "
               "torchvision's own weights are for images of more than 64 pixels: see --resize. Not for "
               "TorchScript.")
          .add("mixed-precision", &Options::mixed_precision,
               "bf16, or fp16 on CUDA devices: matrix products and convolutions in 16 bits, for devices that "
               "are fast at it; many CPUs are not.",
               one_of({"no", "bf16", "fp16"}))
          .section("training")
          .add("epochs", same(&Options::num_train_epochs), "Passes over the training images.", at_least(1))
          .add("batch-size", same(&Options::per_device_train_batch_size), "Images per rank in a step.",
               at_least(1))
          .add("early-stopping-patience", &Options::early_stopping_patience,
               "End the training after this many evaluations in a row without improvement; 0: never. "
               "--metric-for-best-model selects the metric; default: the validation loss.",
               at_least(0))
          .add("ema-decay", &Options::ema_decay,
               "Save the moving average of the weights with this decay; 0: save the last weights.",
               at_least(0.0), less_than(1.0))
          .section("machine")
          .add("backend", same(&Options::ddp_backend), "Backend for communication between ranks.",
               one_of({"auto", "shm", "gloo", "nccl"}))
          .add("timeout", same(&Options::ddp_timeout), "Timeout in seconds of a rank that waits for others.",
               at_least(1))
          .section("checkpoints")
          .add("checkpoint-dir", &Options::checkpoint_dir,
               "Folder for checkpoints, if not --output-dir. With it, SIGUSR1 and SIGTERM stop the training "
               "with a checkpoint and exit code 85, and the same command line resumes.")
          .add("checkpoint-every", &Options::checkpoint_every,
               "Steps between checkpoints; 0: only when the training is stopped, and at its end.",
               at_least(0))
          .add("keep-last", same(&Options::save_total_limit), "Maximum number of checkpoints; 0: keep all.",
               at_least(0))
          .add("resume", same(&Options::resume_from_checkpoint),
               "auto: from the newest complete checkpoint, if any; never: start over; or the path of a "
               "checkpoint.",
               not_empty())
          .add("progress", &Options::progress, "Show a progress bar.")
          .include(lockstep::training_argument_table());
  return table;
}

Options complete(const lockstep::OptionTable<Options>::Parsed& parsed) {
  Options options = parsed.options;
  options.model_dir = options.output_dir;
  if (options.mixed_precision == "bf16") options.bf16 = true;
  if (options.mixed_precision == "fp16") options.fp16 = true;
  if (!parsed.was_given("per-device-eval-batch-size"))
    options.per_device_eval_batch_size = options.per_device_train_batch_size;
  if (options.early_stopping_patience > 0 && !options.metric_for_best_model)
    options.metric_for_best_model = "loss";
  if (options.logging_dir.empty()) options.logging_dir = options.model_dir + "/runs";
  options.disable_tqdm = options.disable_tqdm || !options.progress;
  const bool has_strategy = parsed.was_given("save-strategy") || parsed.was_given("save-steps");
  if (options.checkpoint_every > 0 && (options.checkpoint_dir.empty() || has_strategy)) {
    throw lockstep::UsageError(
        "--checkpoint-every has an effect only with --checkpoint-dir, and without --save-strategy and "
        "--save-steps: give --checkpoint-dir, or --save-steps instead of it.");
  }
  if (!options.checkpoint_dir.empty()) {
    options.output_dir = options.checkpoint_dir;
  } else if (!has_strategy) {
    // No checkpoints were requested: SIGTERM ends the program.
    options.save_strategy = lockstep::SaveStrategy::no;
    options.stop_at_sigterm = false;
  }
  if (!has_strategy) options.save_steps = options.checkpoint_every > 0 ? options.checkpoint_every : kNever;
  lockstep::check_training_arguments(options);
  const bool evaluates = options.eval_strategy != lockstep::IntervalStrategy::no;
  auto dependent = program_options::dependent_arguments(options);
  dependent.insert(
      dependent.end(),
      {{"keep-last", options.save_strategy != lockstep::SaveStrategy::no, "with --checkpoint-dir"},
       {"early-stopping-patience", evaluates, "with an --eval-strategy other than no"}});
  program_options::check_dependent_options(option_table(), parsed, dependent);
  return options;
}
