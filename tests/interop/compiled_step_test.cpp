#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "interop/python.hpp"
#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/models/compiled_step.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/train/accelerator.hpp"
#include "support/accelerators.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep::models {
namespace {

using testing::run_accelerators;
using testing::run_python;
using testing::TemporaryFolder;
using Tensors = std::vector<at::Tensor>;

constexpr int kSteps = 6;
constexpr double kClip = 0.5;

/// What compiled_step_peer.py wrote: the exported modules, and how Python trained them.
class CompiledStepTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    refusals_ = run_python("compiled_step_peer.py", {"write", LOCKSTEP_EXPORTER, folder_->path().string()});
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::filesystem::path exported(const std::string& name) { return *folder_ / name; }
  static TensorMap python(const std::string& name) {
    return load_file(*folder_ / (name + ".safetensors")).tensors;
  }
  static Tensors batch(const TensorMap& python, int step) {
    const std::string prefix = "batch." + std::to_string(step) + ".";
    return {python.at(prefix + "0"), python.at(prefix + "1")};
  }
  /// The folder with one field of step.json replaced.
  static std::filesystem::path changed(const std::string& name, const TemporaryFolder& to,
                                       const std::string& field, const nlohmann::json& value) {
    std::filesystem::copy(exported(name), to / name, std::filesystem::copy_options::recursive);
    nlohmann::json step = nlohmann::json::parse(std::ifstream(to / name / "step.json"));
    step[field] = value;
    std::ofstream(to / name / "step.json") << step;
    return to / name;
  }

  static TemporaryFolder* folder_;
  static std::string refusals_;
};
TemporaryFolder* CompiledStepTest::folder_ = nullptr;
std::string CompiledStepTest::refusals_;

Tensors trained_of(CompiledStep& step) {
  Tensors trained;
  for (const auto& parameter : step->parameters())
    if (parameter.requires_grad()) trained.push_back(parameter);
  return trained;
}

TensorMap state_of(CompiledStep& step) {
  TensorMap state;
  for (const auto& entry : step->named_parameters()) state[entry.key()] = entry.value().detach().clone();
  for (const auto& entry : step->named_buffers()) state[entry.key()] = entry.value().clone();
  return state;
}

/// Steps of an Accelerator with clipping, as trained() of the peer.
struct Training {
  Training(Accelerator& accelerator_, const std::filesystem::path& folder)
      : accelerator(accelerator_), step(folder), optimizer(trained_of(step), {.lr = 1e-2}) {}

  template <class Batch>
  void run(int first, int last, const Batch& batch_of) {
    auto [ddp, opt] = accelerator.prepare(step, optimizer);
    for (int i = first; i < last; ++i) advance(ddp, opt, batch_of(i));
  }
  template <class Ddp, class Optimizer>
  void advance(Ddp& ddp, Optimizer& opt, const Tensors& batch) {
    const at::Tensor loss = ddp(batch[0], batch[1]).front();
    accelerator.backward(loss);
    losses.push_back(loss.detach());
    norms.push_back(accelerator.clip_grad_norm_(trained_of(step), kClip));
    opt.step();
    opt.zero_grad();
  }
  Tensors evaluated(const Tensors& batch) {
    step->eval();
    return step->forward(batch);
  }

  Accelerator& accelerator;
  CompiledStep step;
  optim::AdamW optimizer;
  Tensors losses, norms;
};

/// Draws what the peer draws before each step, so that dropout begins with the same random numbers.
void draw_batch(const std::string& name, int step) {
  torch::manual_seed(100 + step);
  if (name == "texts") {
    for (int i = 0; i < 2; ++i) torch::randint(0, 50, {2, 12}, torch::kLong);
  }
}

using Compare = void (*)(const at::Tensor& ours, const at::Tensor& pythons, const std::string& what);

void expect_same_bits(const at::Tensor& ours, const at::Tensor& pythons, const std::string& what) {
  EXPECT_TRUE(at::equal(ours, pythons)) << what << "\n" << ours << "\n" << pythons;
}

void expect_close(const at::Tensor& ours, const at::Tensor& pythons, const std::string& what) {
  EXPECT_LT((ours - pythons).abs().max().item<double>(), 2e-5) << what << "\n" << ours << "\n" << pythons;
}

void compare_with_python(const std::string& name, const std::filesystem::path& folder,
                         const TensorMap& python, Compare compare) {
  Accelerator accelerator(World::single(), {.device = "cpu"});
  Training training(accelerator, folder);
  const auto batch_of = [&](int i) {
    draw_batch(name, i);
    const std::string prefix = "batch." + std::to_string(i) + ".";
    return Tensors{python.at(prefix + "0"), python.at(prefix + "1")};
  };
  training.run(0, kSteps, batch_of);
  compare(at::stack(training.losses), python.at("losses"), "losses");
  compare(at::stack(training.norms), python.at("norms"), "norms");
  for (const auto& [key, tensor] : state_of(training.step)) compare(tensor, python.at("state." + key), key);
  const Tensors outputs = training.evaluated(batch_of(kSteps - 1));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_FALSE(outputs[i].requires_grad());
    compare(outputs[i], python.at("evaluated." + std::to_string(i)), "evaluated");
  }
}

// Dropout, an attention, a tied weight and one that is not trained; batch norm and its buffers.
TEST_F(CompiledStepTest, ExactStepsHaveTheBitsOfEagerPython) {
  for (const std::string name : {"texts", "images"}) {
    SCOPED_TRACE(name);
    compare_with_python(name, exported(name), python(name), expect_same_bits);
  }
  EXPECT_EQ(CompiledStep(exported("texts"))->output_names(), (std::vector<std::string>{"loss", "logits"}));
}

TEST_F(CompiledStepTest, MachineCodeIsPythonUpToRounding) {
  compare_with_python("rows", exported("rows"), python("rows"), expect_close);
  EXPECT_FALSE(CompiledStep(exported("rows"))->is_exact());
}

// The average of two ranks' gradients is that of two micro-batches of one process: halves are exact.
TEST_F(CompiledStepTest, RanksAverageTheirGradients) {
  const auto data = python("images");
  const auto folder = exported("images");
  CompiledStep alone(folder);
  for (int rank = 0; rank < 2; ++rank) (alone->forward(batch(data, rank)).front() / 2).backward();
  run_accelerators(2, [&](Accelerator& accelerator) {
    CompiledStep step(folder);
    optim::AdamW optimizer(trained_of(step));
    auto [ddp, opt] = accelerator.prepare(step, optimizer);
    const Tensors inputs = batch(data, accelerator.process_index());
    accelerator.backward(ddp(inputs[0], inputs[1]).front());
    for (const auto& entry : step->named_parameters())
      expect_same_bits(entry.value().grad(), alone->named_parameters()[entry.key()].grad(), entry.key());
  });
}

TEST_F(CompiledStepTest, ResumesFromACheckpoint) {
  const auto data = python("images");
  const auto batch_of = [&](int i) { return batch(data, i); };
  const TemporaryFolder folder;
  Accelerator first(World::single(), {.device = "cpu"});
  Training whole(first, exported("images"));
  {
    auto [ddp, opt] = first.prepare(whole.step, whole.optimizer);
    for (int i = 0; i < 3; ++i) whole.advance(ddp, opt, batch_of(i));
    first.save_state(folder / "checkpoint");
    for (int i = 3; i < kSteps; ++i) whole.advance(ddp, opt, batch_of(i));
  }
  Accelerator second(World::single(), {.device = "cpu"});
  Training rest(second, exported("images"));
  auto [ddp, opt] = second.prepare(rest.step, rest.optimizer);
  second.load_state(folder / "checkpoint");
  for (int i = 3; i < kSteps; ++i) rest.advance(ddp, opt, batch_of(i));
  const auto expected = state_of(whole.step);
  for (const auto& [key, tensor] : state_of(rest.step)) expect_same_bits(tensor, expected.at(key), key);
}

TEST_F(CompiledStepTest, PythonLoadsTheModel) {
  const auto data = python("images");
  const TemporaryFolder folder;
  Accelerator accelerator(World::single(), {.device = "cpu"});
  Training training(accelerator, exported("images"));
  training.run(0, 2, [&](int i) { return batch(data, i); });
  accelerator.save_model(training.step, folder.path());
  const std::string sum =
      run_python("compiled_step_peer.py", {"load", folder_->path().string(), folder / "model.safetensors"});
  EXPECT_EQ(std::strtod(sum.c_str(), nullptr), training.evaluated(batch(data, 0))[1].sum().item<double>());
}

TEST_F(CompiledStepTest, WhatWasNotExportedIsRefused) {
  CompiledStep step(exported("images"));
  const auto data = python("images");
  const Tensors inputs = batch(data, 0);
  EXPECT_THROWS(step->forward(inputs[0]), UsageError, "expected 2 inputs, but got 1");
  EXPECT_THROWS(step->forward(inputs[0].narrow(0, 0, 2), inputs[1]), UsageError, "input 0", "[2, 3, 8, 8]",
                "[4, 3, 8, 8]");
  EXPECT_THROWS(step->forward(inputs[0].to(at::kDouble), inputs[1]), UsageError, "input 0", "Double");
  EXPECT_THROWS(step->forward(inputs[0].clone().requires_grad_(), inputs[1]), UsageError, "input 0",
                "requires gradients");
  const at::Tensor loss = step->forward(inputs).front();
  EXPECT_THROWS(loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true), UsageError,
                "second derivatives");
  CompiledStep texts(exported("texts"));
  texts->named_parameters()["scale"].requires_grad_();
  EXPECT_THROWS(texts->forward(batch(python("texts"), 0)), UsageError, "'scale'", "did not");
  step->to(at::kBFloat16);
  EXPECT_THROWS(step->forward(inputs), UsageError, "BFloat16");
  EXPECT_NE(refusals_.find("output 1 is a int"), std::string::npos) << refusals_;
  EXPECT_NE(refusals_.find("draws random numbers (aten."), std::string::npos) << refusals_;
}

TEST_F(CompiledStepTest, FoldersOfOtherMachinesAreRefused) {
  EXPECT_THROWS(CompiledStep(*folder_ / "nothing"), DataError, "step.json", "lockstep_export.py");
  const auto expect_refusal = [&](const std::string& name, const std::string& field,
                                  const nlohmann::json& value, const char* part) {
    const TemporaryFolder to;
    EXPECT_THROWS(CompiledStep(changed(name, to, field, value)), DataError, part);
  };
  expect_refusal("images", "torch", "2.10.0", "exported with torch 2.10.0");
  expect_refusal("images", "machine", "aarch64", "exported on aarch64");
  expect_refusal("images", "format", 2, "its format is 2");
  expect_refusal("images", "parameters", 5, "is damaged");
  expect_refusal("rows", "instructions", {"sse2", "avx4096"}, "lacks: avx4096");
  expect_refusal("rows", "identity", "another", "different exports");
}

/// The loop of docs/compiled_step.md.
void train(lockstep::Accelerator& accelerator, lockstep::DataLoader& loader) {
  lockstep::models::CompiledStep step("net");
  lockstep::optim::AdamW optimizer(step->parameters(), {.lr = 1e-2});
  auto [ddp, opt, batches] = accelerator.prepare(step, optimizer, loader);
  for (auto& batch : batches) {
    accelerator.backward(ddp(batch["images"], batch["labels"]).front());
    accelerator.clip_grad_norm_(ddp, 1.0);
    opt.step();
    opt.zero_grad();
  }
  accelerator.save_model(ddp, "out");  // net.load_state_dict(load_file("out/model.safetensors")) in Python
}

TEST_F(CompiledStepTest, TheLoopOfThePageTrains) {
  const auto before = std::filesystem::current_path();
  const TemporaryFolder folder;
  std::filesystem::create_directory_symlink(exported("images"), folder / "net");
  std::filesystem::current_path(folder.path());
  Accelerator accelerator(World::single(), {.device = "cpu"});
  const Batch rows{{"images", at::randn({8, 3, 8, 8})}, {"labels", at::arange(8).remainder(4)}};
  DataLoader loader(std::make_shared<TensorDataset>(rows), {.batch_size = 4});
  train(accelerator, loader);
  EXPECT_EQ(load_file("out/model.safetensors").tensors.at("norm.num_batches_tracked").item<int>(), 2);
  std::filesystem::current_path(before);
}

// Memory that two results share would let a change of one change the other.
TEST_F(CompiledStepTest, GradientsAndOutputsHaveMemoryOfTheirOwn) {
  for (const std::string name : {"texts", "images", "rows"}) {
    CompiledStep step(exported(name));
    const Tensors outputs = step->forward(batch(python(name), 0));
    outputs.front().backward();
    std::set<const void*> seen;
    for (const auto& tensor : outputs) EXPECT_TRUE(seen.insert(tensor.data_ptr()).second) << name;
    for (const auto& parameter : step->parameters()) {
      EXPECT_TRUE(seen.insert(parameter.data_ptr()).second) << name;
      const at::Tensor& gradient = parameter.grad();
      EXPECT_TRUE(!gradient.defined() || seen.insert(gradient.data_ptr()).second) << name;
    }
  }
}

}  // namespace
}  // namespace lockstep::models
