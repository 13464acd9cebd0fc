#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>

#include <fstream>
#include <mutex>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/compiled_model.hpp"
#include "lockstep/models/script_model.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/parallel/data_parallel.hpp"
#include "support/accelerators.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep::models {
namespace {

using testing::run_accelerators;
using testing::TemporaryFolder;

/// A TorchScript file as Python writes it: x * scale in training, x * scale + running in evaluation.
std::filesystem::path write_script(const TemporaryFolder& folder, const std::string& result = "y") {
  torch::jit::Module script("Net");
  script.register_attribute("training", c10::BoolType::get(), true);
  script.register_parameter("scale", at::tensor({2.0f, 3.0f}).requires_grad_(), /*is_buffer=*/false);
  script.register_buffer("running", at::tensor({10.0f, 10.0f}));
  script.define(
      "def forward(self, x):\n  y = x * self.scale\n  if not self.training:\n    y = y + self.running\n"
      "  return " +
      result + "\n");
  script.save(folder / "net.pt");
  return folder / "net.pt";
}

at::Tensor rows_of(const Accelerator& accelerator, const at::Tensor& all) {
  const auto rows = all.size(0) / accelerator.num_processes();
  return all.narrow(0, rows * accelerator.process_index(), rows);
}

TEST(ScriptModel, TrainsAndEvaluatesInAccelerator) {
  const TemporaryFolder folder;
  const auto path = write_script(folder);
  const at::Tensor input = at::tensor({1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f, 8.0f}).reshape({4, 2});
  run_accelerators(2, [&](Accelerator& accelerator) {
    ScriptModel model(path);
    optim::SGD optimizer(model.parameters(), {.lr = 1});
    auto [ddp, opt] = accelerator.prepare(model, optimizer);
    accelerator.backward(ddp(rows_of(accelerator, input)).mean());
    opt.step();
    // d mean(x * scale) / d scale is the mean over the 4 rows, by half: (2, 2.5).
    const at::Tensor scale = model.parameters().front();
    EXPECT_TRUE(torch::allclose(scale, at::tensor({0.0f, 0.5f})));
    auto evaluated = accelerator.prepare_for_evaluation(model);
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(torch::allclose(evaluated.forward(input), input * scale + 10));
    accelerator.save_model(ddp, folder.path());
  });
  const auto saved = load_file(folder / "model.safetensors").tensors;
  EXPECT_TRUE(saved.contains("scale") && saved.contains("running"));
}

TEST(ScriptModel, FitsInDataParallel) {
  const TemporaryFolder folder;
  DataParallel<ScriptModel> model(ScriptModel(write_script(folder)), {.devices = {2, at::Device(at::kCPU)}});
  const at::Tensor input = at::ones({3, 2});
  EXPECT_TRUE(torch::equal(model(input), input * at::tensor({2.0f, 3.0f})));
  model->eval();
  EXPECT_TRUE(torch::equal(model(input), input * at::tensor({2.0f, 3.0f}) + 10)) << "in all replicas";
  model(input).sum().backward();
  EXPECT_TRUE(torch::equal(model.module().parameters()[0].grad(), at::tensor({3.0f, 3.0f})));
}

TEST(ScriptModel, TheMainTensorOfWhatItReturns) {
  const TemporaryFolder folder;
  const at::Tensor input = at::ones({1, 2}), expected = at::tensor({2.0f, 3.0f}).unsqueeze(0);
  for (const auto* result : {"y", "(y, x)", "{'loss': x, 'logits': y}"})
    EXPECT_TRUE(torch::equal(ScriptModel(write_script(folder, result)).forward(input), expected)) << result;
  ScriptModel wrong(write_script(folder, "[1, 2]"));
  EXPECT_THROWS(wrong.forward(input), DataError, "expected a tensor", "logits");
}

/// One whose forward is this.
ScriptModel defined(const std::string& forward) {
  torch::jit::Module script("Net");
  script.define(forward);
  return ScriptModel(script);
}

TEST(ScriptModel, TakesTheInputsThatItsProgramHas) {
  const at::Tensor x = at::ones({2}), mask = at::tensor({1.0f, 0.0f});
  ScriptModel optional = defined(
      "def forward(self, x, mask: Optional[Tensor] = None, times: int = 3):\n"
      "  y = x * times\n"
      "  if mask is not None:\n"
      "    y = y * mask\n"
      "  return y\n");
  EXPECT_EQ(optional.inputs(), 2u) << "tensors alone";
  EXPECT_TRUE(torch::equal(optional.forward(std::vector{x}), 3 * x));
  EXPECT_TRUE(torch::equal(optional.forward(std::vector{x, mask}), 3 * mask));
  EXPECT_TRUE(torch::equal(optional.forward(std::vector{x, mask, x}), 3 * mask));
  ScriptModel one = defined("def forward(self, x):\n  return x + 1\n");
  EXPECT_EQ(one.inputs(), 1u);
  EXPECT_TRUE(torch::equal(one.forward(std::vector{x, mask}), x + 1));
}

TEST(ScriptModel, ConvertsItsFloatingPointTensorsInPlace) {
  torch::jit::Module script("Net");
  script.register_parameter("scale", at::tensor({2.0f, 3.0f}).requires_grad_(), /*is_buffer=*/false);
  script.register_buffer("mean", at::tensor({1.0, 2.0}, at::kDouble));
  script.register_buffer("places", at::tensor({0, 1000003}, at::kLong));
  script.define("def forward(self, x):\n  return x * self.scale\n");
  ScriptModel model(script);
  const at::Tensor held = model.parameters().front();
  model.to(at::kBFloat16);
  EXPECT_EQ(held.scalar_type(), at::kBFloat16) << "who has the tensor sees the change";
  EXPECT_TRUE(held.requires_grad());
  EXPECT_EQ(script.attr("mean").toTensor().scalar_type(), at::kBFloat16);
  EXPECT_EQ(script.attr("places").toTensor().scalar_type(), at::kLong) << "no bfloat16 is 1000003";
  EXPECT_EQ(model.forward(at::ones({2}, at::kBFloat16)).scalar_type(), at::kBFloat16);
}

TEST(ScriptModel, OtherFilesAreRefused) {
  const TemporaryFolder folder;
  std::ofstream(folder / "text.pt") << "no model at all, but long enough";
  EXPECT_THROWS(ScriptModel(folder / "text.pt"), DataError, "text.pt", "torch.jit.script(model).save");
  EXPECT_THROWS(CompiledModel(write_script(folder)), DataError, "net.pt", "a TorchScript program",
                "aoti_compile_and_package");
  save_file({{"weight", at::ones({2})}}, folder / "weights.pt");
  EXPECT_THROWS(ScriptModel(folder / "weights.pt"), DataError, "safetensors, which hold no program");
}

}  // namespace
}  // namespace lockstep::models
