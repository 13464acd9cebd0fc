#include "kernels/self_check.hpp"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/autograd.h>

#include <exception>
#include <iostream>

#include "comm/cuda/graph_recorder.hpp"
#include "core/first_line.hpp"
#include "core/runtime/signal_free_thread.hpp"
#include "kernels/cuda_kernel.hpp"
#include "kernels/remembered.hpp"
#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::kernels {
namespace {

/// "" if the check returns.
std::string problem_of(const at::Device& device, const std::function<void()>& check) {
  std::string problem;
  signal_free_thread([&] {
    try {
      const c10::DeviceGuard guard(device);
      check();
    } catch (const std::exception& error) {
      problem = first_line_of(error.what());
      if (problem.empty()) problem = "an error without a text";
    }
  }).join();
  return problem;
}

void warn(const std::string& operation, const at::Device& device, const std::string& problem) {
  const std::string name = device.is_cuda() ? cuda_device_name(device.index()) : device.str();
  std::cerr
      << fmt::format(
             "lockstep: warning: the fused kernels of {} are not used, because on {} they do not do what "
             "LibTorch's operations do: {}. LibTorch's slower operations are used instead. "
             "Please report this line with the driver's version; fused_kernels=off disables all fused "
             "kernels\n",
             operation, name, problem)
      << std::flush;
}

}  // namespace

bool is_proven(const std::string& operation, const at::Device& device, const std::function<void()>& check) {
  KernelDevice& kernels = kernel_device();
  if (!kernels.needs_proof()) return true;
  const std::string key = operation + " on " + device.str();
  {
    const std::lock_guard lock(kernels.proofs.mutex);
    const auto found = kernels.proofs.verdicts.find(key);
    if (found != kernels.proofs.verdicts.end()) return found->second;
    comm::GraphRecorder* const recorder = comm::GraphRecorder::of(device);
    if (recorder != nullptr && recorder->is_recording()) return false;
    // While it runs, as its own operations ask.
    kernels.proofs.verdicts[key] = true;
  }
  const std::string problem = [&] {
    const comm::GraphRecorder::Waiting may_wait(device);
    return problem_of(device, check);
  }();
  if (problem.empty()) return true;
  {
    const std::lock_guard lock(kernels.proofs.mutex);
    kernels.proofs.verdicts[key] = false;
  }
  // Others may have been told that it may be used.
  forget_answers();
  warn(operation, device, problem);
  return false;
}

void compare(const Comparison& comparison) {
  const auto run = [](const auto& operation, const Tensors& inputs) {
    const Tensors results = operation(inputs);
    Tensors all, factors;
    for (const auto& result : results) {
      all.push_back(result.detach());
      const double phase = 1 + static_cast<double>(factors.size());
      factors.push_back(waves(result.sizes(), at::kDouble, result.device(), phase)
                            .detach()
                            .to(at::kBFloat16)
                            .to(result.scalar_type()));
    }
    const auto gradients = torch::autograd::grad(results, inputs, factors);
    all.insert(all.end(), gradients.begin(), gradients.end());
    return all;
  };
  Tensors wide;
  for (const auto& input : comparison.inputs) wide.push_back(input.detach().to(at::kDouble).requires_grad_());
  const Tensors exact = run(comparison.reference, wide), got = run(comparison.fused, comparison.inputs);
  if (got.size() != exact.size()) throw Error("the numbers of results differ");
  const std::size_t results = got.size() - comparison.inputs.size();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::string what =
        i < results ? fmt::format("result {}", i) : fmt::format("gradient {}", i - results);
    expect_near(what, got[i], exact[i], comparison.tolerance);
  }
}

void expect_near(const std::string& what, const at::Tensor& got, const at::Tensor& exact, double tolerance) {
  if (got.sizes() != exact.sizes()) {
    throw Error(fmt::format("{} has the sizes {}, expected {}", what, c10::str(got.sizes()),
                            c10::str(exact.sizes())));
  }
  const double scale = exact.abs().max().item<double>() + 1e-30;
  const double distance = (got.detach().to(at::kDouble) - exact).abs().max().item<double>() / scale;
  // Not a number is not near.
  if (!(distance <= tolerance))
    throw Error(fmt::format("{} differs by {:.2g} of its largest element, expected at most {:.2g}", what,
                            distance, tolerance));
}

at::Tensor waves(at::IntArrayRef sizes, at::ScalarType dtype, const at::Device& device, double phase) {
  const auto options = at::TensorOptions(at::kDouble).device(device);
  const at::Tensor steps = at::arange(c10::multiply_integers(sizes), options);
  return at::sin(steps * steps * 0.137 + steps * 0.71 + phase)
      .view(sizes)
      .to(dtype)
      .detach()
      .requires_grad_();
}

}  // namespace lockstep::kernels
