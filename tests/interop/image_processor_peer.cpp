// The C++ side of image_processor_compare.py: `image_processor_peer FOLDER IMAGES OUT` prepares the images of
// IMAGES, a folder of classes, as FOLDER/preprocessor_config.json says. OUT/pixels.safetensors has the
// results by the files' names, of the image folder and, behind "memory/", of images in memory. OUT also gets
// the file.

#include <ATen/ATen.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/data/image_folder.hpp"
#include "lockstep/models/image_processor.hpp"

namespace {

using lockstep::ImageFolder;
using lockstep::SampleContext;
namespace fs = std::filesystem;
namespace models = lockstep::models;

int run(int argc, char** argv) {
  if (argc != 4) throw lockstep::UsageError("expected: image_processor_peer FOLDER IMAGES OUT");
  const auto processor = models::ImageProcessorConfig::from_file(argv[1]);
  const ImageFolder prepared(argv[2], processor.folder_options());
  const ImageFolder raw(argv[2], {.keep_bytes = true});
  lockstep::TensorMap pixels;
  for (std::int64_t i = 0; i < raw.size(); ++i) {
    const std::string name = raw.path(i).filename().string();
    pixels[name] = prepared.get(i, SampleContext{})["image"];
    const at::Tensor bytes = raw.get(i, SampleContext{})["image"];
    pixels["memory/" + name] = models::process_images(processor, bytes.unsqueeze(0))[0];
  }
  lockstep::save_file(pixels, fs::path(argv[3]) / "pixels.safetensors");
  models::save_image_processor(processor, argv[3]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("image_processor_peer", [&] { return run(argc, argv); });
}
