// Reads a folder of images as for training and prints images a second: image_benchmark FOLDER WORKERS
// BATCH_SIZE EPOCHS exact|scaled. What it does to an image is what images.py does in Python.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/image_folder.hpp"

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fputs("image_benchmark FOLDER WORKERS BATCH_SIZE EPOCHS exact|scaled\n", stderr);
    return 2;
  }
  at::set_num_threads(1);  // As images.py does.
  lockstep::ImageFolderOptions options;
  options.random_resized_crop.size = {224, 224};
  options.flip_probability = 0.5;
  options.mean = {0.485F, 0.456F, 0.406F};
  options.std = {0.229F, 0.224F, 0.225F};
  options.scaled_decoding = std::string(argv[5]) == "scaled";
  const auto folder = std::make_shared<const lockstep::ImageFolder>(argv[1], options);
  lockstep::DataLoader loader(
      folder, {.batch_size = std::atoll(argv[3]), .shuffle = true, .num_workers = std::atoi(argv[2])});
  for (long long epoch = 0; epoch <= std::atoll(argv[4]); ++epoch) {
    const auto begin = std::chrono::steady_clock::now();
    std::int64_t rows = 0;
    for (const auto& batch : loader) rows += batch.size();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (rows != folder->size()) return 1;
    if (epoch > 0) std::printf("%.1f\n", static_cast<double>(rows) / seconds.count());  // The first warms up.
  }
  return 0;
}
