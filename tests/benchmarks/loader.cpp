// Reads made-up images of CIFAR's kind and prints images a second: loader_benchmark WORKERS IMAGES BATCH_SIZE
// EPOCHS What it does to an image is what loader.py does in Python.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "core/runtime/malloc_tuning.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/image_transforms.hpp"

namespace {

using lockstep::Batch;
using lockstep::DataLoader;

std::shared_ptr<const lockstep::Dataset> images(std::int64_t count) {
  const auto pixels = at::randint(256, {count, 32, 32, 3}, at::kByte);
  const auto labels = at::randint(10, {count}, at::kLong);
  return lockstep::transformed(
      std::make_shared<lockstep::TensorDataset>(Batch{{"image", pixels}, {"label", labels}}), "image",
      {.layout = lockstep::ImageLayout::hwc,
       .crop = {32, 32},
       .padding = 4,
       .flip_probability = 0.5,
       .mean = {0.4914F, 0.4822F, 0.4465F},
       .std = {0.2470F, 0.2435F, 0.2616F}});
}

/// Images a second in one epoch.
double read_epoch(DataLoader& loader, std::int64_t expected) {
  const auto begin = std::chrono::steady_clock::now();
  std::int64_t rows = 0;
  for (auto& batch : loader) rows += batch.size();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (rows != expected) std::abort();
  return static_cast<double>(rows) / seconds.count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("loader_benchmark WORKERS IMAGES BATCH_SIZE EPOCHS\n", stderr);
    return 2;
  }
  const auto number = [&](int place) { return std::atoll(argv[place]); };
  at::set_num_threads(1);  // As loader.py does.
  // As an Accelerator does: otherwise the heap's layout decides how many pages each batch maps anew.
  lockstep::tune_malloc(lockstep::process_environment());
  DataLoader loader(images(number(2)),
                    {.batch_size = number(3), .shuffle = true, .num_workers = static_cast<int>(number(1))});
  for (std::int64_t epoch = 0; epoch <= number(4); ++epoch) {
    const double speed = read_epoch(loader, number(2));
    if (epoch > 0) std::printf("%.0f\n", speed);  // The first epoch warms up.
  }
  return 0;
}
