#include "options.hpp"

using lockstep::at_least;
using lockstep::less_than;
using lockstep::more_than;
using lockstep::not_empty;
using lockstep::one_of;

const lockstep::OptionTable<Options>& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>(
          "image_classification",
          "Trains a small convolutional network or a ResNet on images (MNIST's format, CIFAR-10's, the "
          "digits that come along) and saves it. Runs alone, or on many ranks under 'lockstep run' or "
          "torchrun.")
          .section("data")
          .add("data", &Options::data,
               "Folder with one file *-images-idx3-ubyte and one *-labels-idx1-ubyte; with two such pairs, "
               "*train-... and *t10k-..., as MNIST has them; or with data_batch_*.bin and test_batch.bin of "
               "CIFAR-10's binary version. Without it: the handwritten digits that come with Lockstep.")
          .add("validation-fraction", &Options::validation_fraction,
               "Share of the images to validate on after each epoch; of those to train on, where others are "
               "there for the test.",
               more_than(0.0), less_than(1.0))
          .add("test-fraction", &Options::test_fraction,
               "Share of the images to test on at the end (default: 0.2). Not for data that have images of "
               "their own for it.",
               more_than(0.0), less_than(1.0))
          .add("num-workers", &Options::num_workers, "Threads that read ahead; 0 reads between the steps.",
               at_least(0))
          .section("images")
          .add("resize", &Options::resize,
               "Makes them so many pixels high and wide; 0: they stay as they are.", at_least(0))
          .add("random-crop-padding", &Options::random_crop_padding,
               "To train on, cuts a window of the image's size at a random place out of the image with so "
               "many black pixels around it.",
               at_least(0))
          .add("horizontal-flip", &Options::horizontal_flip,
               "To train on, mirrors every other image, at random.")
          .add("normalize", &Options::normalize,
               "Subtracts the mean of each channel and divides by its standard deviation; both are of the "
               "images to train on, and are printed.")
          .section("model")
          .add(
              "model", &Options::model,
              "small: a convolutional network of Lockstep's own, as without this flag; resnet18 or resnet50: "
              "torchvision's, but with a first convolution of 3x3 and no pooling after it for images of up "
              "to 64 pixels; or the path of a TorchScript file from Python (torch.jit.script(net).save), "
              "which takes images [rows, channels, height, width] and returns scores [rows, classes].")
          .add("weights", &Options::weights,
               "File of safetensors to begin with, as this program or torchvision's state dictionary gives "
               "it. A last layer of another number of classes is replaced by a new one. torchvision's own "
               "weights are for images of more than 64 pixels: see --resize. Not for TorchScript.")
          .add("mixed-precision", &Options::mixed_precision,
               "bf16: matrix products and convolutions in half-wide numbers, for devices that are fast at "
               "it; many CPUs are not.",
               one_of({"no", "bf16"}))
          .section("training")
          .add("epochs", &Options::epochs, "Passes over the training images.", at_least(1))
          .add("batch-size", &Options::batch_size, "Images in a step of each rank.", at_least(1))
          .add("learning-rate", &Options::learning_rate,
               "Step size of AdamW at the start; it falls linearly to 0.", more_than(0.0))
          .add("weight-decay", &Options::weight_decay, "Weight decay of AdamW.", at_least(0.0))
          .add("seed", &Options::seed, "Decides the split, the first weights and the order of the images.")
          .section("machine")
          .add("device", &Options::device, "auto, cpu, cuda, or one device as in cuda:0.")
          .add("backend", &Options::backend, "What carries gradients between ranks.",
               one_of({"auto", "shm", "gloo", "nccl"}))
          .add("timeout", &Options::timeout, "Seconds after which a rank that waits for another gives up.",
               at_least(1))
          .section("output")
          .add("output-dir", &Options::output_dir, "Folder for model.safetensors; made where needed.")
          .section("checkpoints")
          .add("checkpoint-dir", &Options::checkpoint_dir,
               "Folder for checkpoints. With it, SIGUSR1 and SIGTERM stop the training with a checkpoint and "
               "exit code 85, and the same command line goes on from there.")
          .add("checkpoint-every", &Options::checkpoint_every,
               "Steps between checkpoints; 0: only when the training is stopped, and at its end.",
               at_least(0))
          .add("keep-last", &Options::keep_last, "How many checkpoints are kept; 0: all.", at_least(0))
          .add("resume", &Options::resume,
               "auto: from the newest whole checkpoint in --checkpoint-dir, if there is one; never: from the "
               "beginning; or the path of a checkpoint to begin with.",
               not_empty())
          .add("progress", &Options::progress, "Show a progress bar.");
  return table;
}
