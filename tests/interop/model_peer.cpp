// The C++ side of training_interop_test: `model_peer FOLDER` loads FOLDER/model.safetensors, writes to
// FOLDER/logits.RANK.safetensors what this rank's model says of FOLDER/images.safetensors, and saves the
// model to FOLDER/again.

#include <torch/types.h>
#include <unistd.h>

#include <filesystem>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/models/small_conv_net.hpp"
#include "lockstep/train/accelerator.hpp"

namespace {

/// No hang outlives the test: after this long the process is ended by a signal.
constexpr unsigned kSecondsToLive = 50;

int run(int argc, char** argv) {
  ::alarm(kSecondsToLive);
  if (argc != 2) throw lockstep::UsageError("expected: model_peer FOLDER");
  const std::filesystem::path folder = argv[1];
  const lockstep::Accelerator accelerator({.device = "cpu"});
  // Every rank starts from other weights: what it has in the end came from the file.
  torch::manual_seed(static_cast<std::uint64_t>(accelerator.process_index()));
  lockstep::models::SmallConvNet model;
  accelerator.load_model(model, folder);
  const torch::NoGradGuard no_grad;
  const at::Tensor images = lockstep::load_file(folder / "images.safetensors").tensors.at("images");
  const std::string rank = std::to_string(accelerator.process_index());
  lockstep::save_file({{"logits", model(images)}}, folder / ("logits." + rank + ".safetensors"));
  accelerator.save_model(model, folder / "again");
  accelerator.wait_for_everyone();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("model_peer", [&] { return run(argc, argv); });
}
