// Reads a folder of images for image_folder_compare.py:
// image_folder_peer evaluate|train|skip|mix|jitter|jitter-center FOLDER WORKERS
//
// Prints the classes, each sample's file, and what could not be read; then the batches' bytes: images,
// labels, valid.

#include <ATen/ATen.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/image_folder.hpp"

namespace {

using namespace lockstep;

ImageFolderOptions options_of(const std::string& mode) {
  ImageFolderOptions options;
  options.mean = {0.485F, 0.456F, 0.406F};
  options.std = {0.229F, 0.224F, 0.225F};
  options.skip_bad = mode == "skip";
  if (mode == "train") {
    options.random_resized_crop.size = {48, 40};
    options.color_jitter = {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1};
    options.flip_probability = 0.5;
    options.random_erasing.probability = 0.5;
  } else if (mode.starts_with("jitter")) {
    options.color_jitter = {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1};
    if (mode == "jitter-center") options.center_crop = {56, 56};
  } else {
    options.resize = 64;
    options.center_crop = {56, 56};
  }
  return options;
}

void write(const at::Tensor& tensor) {
  const auto whole = tensor.contiguous();
  std::cout.write(static_cast<const char*>(whole.const_data_ptr()),
                  static_cast<std::streamsize>(whole.nbytes()));
}

void run(const std::string& mode, const std::string& root, int workers) {
  const auto folder = std::make_shared<const ImageFolder>(root, options_of(mode));
  std::shared_ptr<const Dataset> dataset = folder;
  const auto classes = static_cast<std::int64_t>(folder->classes().size());
  if (mode == "mix") dataset = mixed(folder, {.mixup_alpha = 0.4, .cutmix_alpha = 1.0, .classes = classes});
  DataLoader loader(dataset, {.batch_size = 4, .num_workers = workers, .seed = 7});
  std::vector<at::Tensor> images, labels, valid;
  for (const auto& batch : loader) {
    images.push_back(batch["image"]);
    labels.push_back(batch["label"]);
    valid.push_back(batch.valid_mask());
  }
  for (const auto& name : folder->classes()) std::cout << "class " << name << '\n';
  for (std::int64_t index = 0; index < folder->size(); ++index)
    std::cout << "file " << folder->path(index).string() << '\n';
  for (const auto& [index, what] : folder->bad_images()) std::cout << "bad " << index << ' ' << what << '\n';
  std::cout << "data\n";
  write(at::cat(images));
  write(at::cat(labels));
  write(at::cat(valid));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    run(argv[1], argv[2], std::stoi(argv[3]));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
