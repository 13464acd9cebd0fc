// Trains a network to tell what is on images, on one rank or on many.

#include <iostream>

#include "images.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/datasets/prepare.hpp"
#include "models.hpp"
#include "options.hpp"
#include "training.hpp"

namespace {

int run(int argc, char** argv) {
  const auto parsed = option_table().parse(argc, argv);
  if (parsed.help) {
    std::cout << option_table().help();
    return 0;
  }
  const Options& options = parsed.options;
  check_model(options);
  const auto precision =
      options.mixed_precision == "bf16" ? lockstep::MixedPrecision::bf16 : lockstep::MixedPrecision::no;
  lockstep::Accelerator accelerator({.mixed_precision = precision,
                                     .device = options.device,
                                     .backend = lockstep::comm_backend_from(options.backend),
                                     .timeout = std::chrono::seconds(options.timeout)});
  const Images images = accelerator.main_process_first([&] { return load_images(options); });
  // Under 'lockstep prepare' the data were all that was asked for.
  if (lockstep::preparing(lockstep::process_environment())) return 0;
  return train_and_test(accelerator, images, options);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("image_classification", [&] { return run(argc, argv); });
}
