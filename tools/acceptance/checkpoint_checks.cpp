#include <stdlib.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <filesystem>

#include "checks.hpp"

namespace acceptance {
namespace {

namespace fs = std::filesystem;
using lockstep::Accelerator;

/// A folder of rank 0's that goes at the end.
class SharedFolder {
 public:
  explicit SharedFolder(Accelerator& accelerator) : is_main_(accelerator.is_main_process()) {
    path_ = accelerator.on_main_process([] {
      std::string name = (fs::temp_directory_path() / "lockstep-test-XXXXXX").string();
      require(::mkdtemp(name.data()) != nullptr,
              "cannot make a folder in " + fs::temp_directory_path().string());
      return name;
    });
  }
  ~SharedFolder() {
    std::error_code ignored;
    if (is_main_) fs::remove_all(path_, ignored);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  bool is_main_;
  fs::path path_;
};

struct Training {
  explicit Training(Accelerator& accelerator)
      : network(torch::nn::Linear(3, 2)), adam(network->parameters()) {
    accelerator.prepare(network, adam);
  }
  void step(Accelerator& accelerator) {
    for (auto& parameter : network->parameters())
      parameter.mutable_grad() =
          torch::arange(parameter.numel(), accelerator.device()).view(parameter.sizes()).to(torch::kFloat);
    adam.step();
  }

  torch::nn::Linear network;
  torch::optim::Adam adam;
};

void save_and_go_on(Accelerator& accelerator, bool asynchronous) {
  const SharedFolder folder(accelerator);
  Training training(accelerator);
  training.step(accelerator);
  accelerator.save_state(folder / "state", {.step = 1}, {.asynchronous = asynchronous});
  training.step(accelerator);
  const at::Tensor wanted = training.network->weight.detach().clone();
  training.step(accelerator);
  require(accelerator.load_state(folder / "state").info.step == 1, "the checkpoint is of another step");
  training.step(accelerator);
  require(torch::equal(training.network->weight, wanted), "training went on differently after loading");
  accelerator.free_memory();
}

void resumes(Accelerator& accelerator) { save_and_go_on(accelerator, false); }
void resumes_from_asynchronous(Accelerator& accelerator) { save_and_go_on(accelerator, true); }

void models_come_back(Accelerator& accelerator) {
  const SharedFolder folder(accelerator);
  torch::nn::Linear network(8, 8);
  auto model = accelerator.prepare(network);
  for (const std::uint64_t largest : {std::uint64_t{100}, lockstep::kMaxShardBytes}) {
    const at::Tensor wanted = network->weight.detach().clone();
    accelerator.save_model(model, folder / "model", largest);
    torch::NoGradGuard no_grad;
    network->weight.zero_();
    accelerator.load_model(model, folder / "model");
    require(torch::equal(network->weight, wanted), "a model came back with other weights");
  }
  accelerator.free_memory();
}

}  // namespace

std::vector<Check> checkpoint_checks() {
  return {{"a checkpoint brings training back", resumes},
          {"so does one that is written beside the training", resumes_from_asynchronous},
          {"models are saved and loaded, in parts too", models_come_back}};
}

}  // namespace acceptance
