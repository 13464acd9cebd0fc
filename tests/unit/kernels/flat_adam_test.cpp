// Steps of Adam and AdamW by a kernel of our own, on the emulator.

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/optim/adam.hpp"
#include "optim/flat_adam_check.hpp"
#include "optim/step_factors.hpp"
#include "unit/kernels/emulated_kernels.hpp"

namespace lockstep::optim {
namespace {

using Tensors = std::vector<at::Tensor>;
using testing::EmulatedKernels;
using Launches = std::map<std::string, int>;

/// Of sizes that are no multiples of anything, one that takes two blocks and more, one at an odd address, one
/// without elements, and one whose memory is not in the order of its dimensions.
Tensors weights() {
  torch::manual_seed(4);
  Tensors made;
  for (const std::int64_t size : {1, 7, 256, 8192, 20001, 0}) made.push_back(torch::randn({size}));
  made.push_back(torch::randn({13}).narrow(0, 1, 12));
  made.push_back(torch::randn({6, 10}).t());
  for (auto& weight : made) weight.requires_grad_();
  return made;
}

void fill_gradients(const Tensors& weights, int step) {
  for (const auto& weight : weights)
    weight.mutable_grad() = (weight.detach() * 3 + step).sin() * std::pow(10.0, step % 4 - 3);
}

/// Steps in double precision, by the formulas of torch.optim.
struct Reference {
  explicit Reference(const Tensors& weights) {
    for (const auto& weight : weights) {
      values.push_back(weight.detach().to(at::kDouble));
      averages.push_back(at::zeros_like(values.back()));
      squares.push_back(at::zeros_like(values.back()));
      maxima.push_back(at::zeros_like(values.back()));
    }
  }
  template <class Options>
  void step(const Tensors& weights, const Options& options, bool is_decoupled, double factor = 1) {
    ++steps;
    const auto [beta1, beta2] = options.betas;
    for (std::size_t i = 0; i < values.size(); ++i) {
      at::Tensor gradient = weights[i].grad().to(at::kDouble) * (options.maximize ? -factor : factor);
      if (is_decoupled) {
        values[i].mul_(1 - options.lr * options.weight_decay);
      } else {
        gradient = gradient + values[i] * options.weight_decay;
      }
      averages[i].mul_(beta1).add_(gradient, 1 - beta1);
      squares[i].mul_(beta2).add_(gradient.square(), 1 - beta2);
      maxima[i] = at::maximum(maxima[i], squares[i]);
      const at::Tensor largest = options.amsgrad ? maxima[i] : squares[i];
      const double correction1 = 1 - std::pow(beta1, steps), correction2 = 1 - std::pow(beta2, steps);
      values[i].sub_(averages[i] / (largest.sqrt() / std::sqrt(correction2) + options.eps) * options.lr /
                     correction1);
    }
  }
  Tensors values, averages, squares, maxima;
  int steps = 0;
};

/// The largest difference, in units of 2^-24 of the largest value of a tensor.
double apart(const Tensors& weights, const Tensors& values) {
  double worst = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].numel() == 0) continue;
    const at::Tensor difference = (weights[i].detach().to(at::kDouble) - values[i]).abs().max();
    worst = std::max(worst, difference.item<double>() / values[i].abs().max().item<double>() * (1 << 24));
  }
  return worst;
}

template <class Optimizer, class Options>
void expect_right(const Options& options, bool is_decoupled, const char* instance) {
  SCOPED_TRACE(instance);
  const Tensors flat = weights(), fused = weights();
  Optimizer ours(flat, options), theirs(fused, options);
  Reference reference(flat);
  for (int step = 0; step < 6; ++step) {
    fill_gradients(flat, step);
    for (std::size_t i = 0; i < flat.size(); ++i) fused[i].mutable_grad() = flat[i].grad().clone();
    {
      EmulatedKernels emulated(static_cast<unsigned>(step));
      ours.step();
      EXPECT_EQ(emulated.launches(), (Launches{{instance, 1}}));
    }
    theirs.step();
    reference.step(flat, options, is_decoupled);
    EXPECT_LE(apart(flat, reference.values), 4);
    EXPECT_LE(apart(fused, reference.values), 8);
  }
}

TEST(FlatAdam, StepsAsInDoublePrecision) {
  const AdamWOptions decoupled{.lr = 0.01, .weight_decay = 0.1};
  expect_right<AdamW>(decoupled, true, "adam<true, false, false>");
  AdamWOptions other = decoupled;
  other.amsgrad = true;
  expect_right<AdamW>(other, true, "adam<true, true, false>");
  other.maximize = true;
  expect_right<AdamW>(other, true, "adam<true, true, true>");
  const AdamOptions coupled{.lr = 0.01, .betas = {0.8, 0.9}, .weight_decay = 0.1};
  expect_right<Adam>(coupled, false, "adam<false, false, false>");
  AdamOptions plain;
  plain.maximize = true;
  expect_right<Adam>(plain, false, "adam<false, false, true>");
}

/// As with gradients that are multiplied first: the same bits, and they stay as they are.
TEST(FlatAdam, MultipliesGradientsOnTheWay) {
  const Tensors folded = weights(), apart = weights();
  AdamW one(folded), other(apart);
  EmulatedKernels emulated(1);
  for (int step = 0; step < 3; ++step) {
    fill_gradients(folded, step);
    const at::Tensor before = folded[4].grad().clone();
    const at::Tensor factor = at::full({}, 0.37 / (step + 1), at::kFloat);
    for (std::size_t i = 0; i < folded.size(); ++i) apart[i].mutable_grad() = folded[i].grad() * factor;
    one.step_by({.factor = factor});
    other.step();
    EXPECT_TRUE(at::equal(folded[4].grad(), before));
    for (std::size_t i = 0; i < folded.size(); ++i) EXPECT_TRUE(at::equal(folded[i], apart[i])) << i;
  }
}

/// A step that is left out changes nothing, and the next one has its number.
TEST(FlatAdam, LeavesOutSteps) {
  const Tensors some = weights(), others = weights();
  AdamW one(some, {.lr = 0.1}), other(others, {.lr = 0.1});
  EmulatedKernels emulated(1);
  const std::vector<bool> are_finite = {false, true, false, true, true};
  for (int step = 0; step < 5; ++step) {
    fill_gradients(some, step);
    if (!are_finite[step]) some[3].mutable_grad().fill_(std::numeric_limits<double>::infinity());
    one.step_by({.found_inf = at::full({1}, are_finite[step] ? 0 : 1, at::kFloat)});
    if (!are_finite[step]) continue;
    for (std::size_t i = 0; i < some.size(); ++i) others[i].mutable_grad() = some[i].grad();
    other.step();
    for (std::size_t i = 0; i < some.size(); ++i) EXPECT_TRUE(at::equal(some[i], others[i])) << i;
  }
  for (const auto& weight : some) {
    const auto& state =
        static_cast<torch::optim::AdamParamState&>(*one.state().at(weight.unsafeGetTensorImpl()));
    EXPECT_EQ(state.step(), 3);
  }
}

/// Numbers of steps that differ, and more tensors than a launch takes.
TEST(FlatAdam, StepsManyTensorsByFewLaunches) {
  Tensors many, others;
  for (int i = 0; i < 250; ++i) {
    many.push_back(torch::full({3}, i + 1.0).requires_grad_());
    others.push_back(torch::full({3}, i + 1.0).requires_grad_());
  }
  AdamW one(many), other(others);
  const auto fill = [](const Tensors& tensors, std::size_t begin) {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      tensors[i].mutable_grad() = i < begin ? at::Tensor() : torch::full({3}, 0.1);
  };
  EmulatedKernels emulated(1);
  fill(many, 248);
  one.step();
  fill(many, 0);
  one.step();
  const char* const instance = "adam<true, false, false>";
  EXPECT_EQ(emulated.launches().at(instance), 1 + 2 + 1);
  const at::Tensor half = torch::ones({2}, at::kDouble).requires_grad_();
  half.mutable_grad() = torch::ones({2}, at::kDouble);
  AdamW(Tensors{half}).step();
  EXPECT_EQ(emulated.launches().at(instance), 4) << "not for other dtypes";
  kernels::set_kernel_device(nullptr);
  fill(others, 248);
  other.step();
  fill(others, 0);
  other.step();
  for (std::size_t i = 0; i < many.size(); ++i)
    EXPECT_TRUE(at::allclose(many[i], others[i], 1e-6, 1e-7)) << i;
}

/// A kernel that computes other numbers than it should, or fails.
class WrongKernel final : public kernels::CudaKernel {
 public:
  explicit WrongKernel(bool fails) : CudaKernel("lockstep::adam<wrong>"), fails_(fails) {}

 private:
  void launch_with(const kernels::Grid& /*grid*/, void** /*arguments*/) const override {
    if (fails_) throw std::runtime_error("invalid device function\nwith more lines");
  }
  bool fails_;
};

class WrongDevice final : public kernels::KernelDevice {
 public:
  explicit WrongDevice(bool fails) : kernel_(fails) {}
  const kernels::CudaKernel* find(const std::string&, const std::string&, const at::Device&) override {
    return &kernel_;
  }
  int multiprocessors(const at::Device&) override { return 1; }

 private:
  WrongKernel kernel_;
};

TEST(FlatAdam, ProvesItselfBesideLibTorch) {
  EmulatedKernels emulated(1);
  for (const bool is_decoupled : {false, true}) {
    for (const bool has_maxima : {false, true}) {
      const AdamKind kind{.is_decoupled = is_decoupled, .has_maxima = has_maxima, .maximizes = has_maxima};
      const auto instance = [](const AdamKind& of) {
        return std::string("adam<") + (of.is_decoupled ? "true, " : "false, ") +
               (of.has_maxima ? "true, " : "false, ") + (of.maximizes ? "true>" : "false>");
      };
      EXPECT_TRUE(agrees_with_libtorch(*emulated.find("adam", instance(kind), at::kCPU), kind, at::kCPU));
      AdamKind other = kind;
      other.is_decoupled = !is_decoupled;
      EXPECT_FALSE(agrees_with_libtorch(*emulated.find("adam", instance(other), at::kCPU), kind, at::kCPU));
    }
  }
}

/// LibTorch's is used instead, with one warning.
TEST(FlatAdam, IsNotUsedWhereItIsWrong) {
  for (const bool fails : {false, true}) {
    SCOPED_TRACE(fails);
    const Tensors ours = weights(), theirs = weights();
    AdamW one(ours), other(theirs);
    WrongDevice device(fails);
    ::testing::internal::CaptureStderr();
    for (int step = 0; step < 3; ++step) {
      fill_gradients(ours, step);
      for (std::size_t i = 0; i < ours.size(); ++i) theirs[i].mutable_grad() = ours[i].grad().clone();
      kernels::set_kernel_device(nullptr);
      other.step();
      kernels::set_kernel_device(&device);
      one.step();
    }
    kernels::set_kernel_device(nullptr);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("the fused kernels of steps by adam<true, false, false> are not used, because on cpu "
                        "they do not do what LibTorch's operations do: "),
              std::string::npos)
        << said;
    EXPECT_EQ(said.find("warning"), said.rfind("warning")) << said;
    EXPECT_NE(
        said.find(fails ? "do: invalid device function. LibTorch's" : "do: some values of a step differ"),
        std::string::npos)
        << said;
    for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::equal(ours[i], theirs[i])) << i;
  }
}

}  // namespace
}  // namespace lockstep::optim
