// Trains an image classifier, on one rank or many.

#include <iostream>

#include "images.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/datasets/prepare.hpp"
#include "lockstep/train/trainer.hpp"
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
  const Options options = complete(parsed);
  check_model(options);
  auto how = lockstep::accelerator_options(options);
  how.dataloader_config.sharding = lockstep::Sharding::by_sample;
  lockstep::Accelerator accelerator(how);
  const Images images = accelerator.main_process_first([&] { return load_images(options); });
  // 'lockstep prepare' needs only the data.
  if (lockstep::preparing(lockstep::process_environment())) return 0;
  return train_and_test(accelerator, images, options);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("image_classification", [&] { return run(argc, argv); });
}
