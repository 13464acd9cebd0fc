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
          "Trains a small convolutional network on images in IDX files (the format of MNIST) "
          "and saves it. Runs alone, or on many ranks under 'lockstep run' or torchrun.")
          .section("data")
          .add("data", &Options::data,
               "Folder with one file *-images-idx3-ubyte and one *-labels-idx1-ubyte. Without it: the "
               "handwritten digits "
               "that come with Lockstep.")
          .add("validation-fraction", &Options::validation_fraction,
               "Share of the images to validate on after each epoch.", more_than(0.0), less_than(1.0))
          .add("test-fraction", &Options::test_fraction, "Share of the images to test on at the end.",
               more_than(0.0), less_than(1.0))
          .add("num-workers", &Options::num_workers, "Threads that read ahead; 0 reads between the steps.",
               at_least(0))
          .section("training")
          .add("model", &Options::model,
               "TorchScript file from Python (torch.jit.script(net).save), which takes images [rows, 1, "
               "height, width] and returns scores [rows, classes]. Without it: a small convolutional network "
               "of Lockstep's own.")
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
