#include "kernels/gated.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <string_view>

#include "kernels/cuda_arguments.hpp"
#include "kernels/cuda_kernel.hpp"
#include "kernels/fused_kernels.hpp"
#include "kernels/kernel_arguments.hpp"
#include "kernels/no_second_derivatives.hpp"
#include "kernels/remembered.hpp"
#include "kernels/self_check.hpp"

namespace lockstep::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int kGateThreads = 256;
/// Elements of 16 bits that a thread reads at once.
constexpr std::int64_t kGatePack = 8;

const CudaKernel* gate_kernel(const char* name, const at::Device& device, at::ScalarType dtype,
                              Gate activation) {
  thread_local Remembered<const CudaKernel*, std::string_view, int, at::ScalarType, Gate> known;
  return known.get({name, device.index(), dtype, activation}, [&] {
    return find_kernel(
        "gated", fmt::format("{}<{}, {}>", name, cuda_type(dtype), static_cast<int>(activation)), device);
  });
}

Grid gate_grid(std::int64_t elements) {
  const std::int64_t of_block = kGateThreads * kGatePack;
  return {.blocks = (elements + of_block - 1) / of_block, .threads = kGateThreads};
}

/// [rows, width], which may lie apart.
at::Tensor rows_of(const at::Tensor& values) {
  const at::Tensor rows = values.reshape({-1, values.size(-1)});
  const bool fits = rows.stride(1) == 1 && rows.stride(0) % kGatePack == 0 && is_aligned(rows);
  return fits ? rows : rows.clone(at::MemoryFormat::Contiguous);
}

/// Both as rows: halves of the gate if there is no other.
struct GateRows {
  at::Tensor gate, up;
};

GateRows gate_rows(const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor rows = rows_of(gate);
  if (up.defined()) return {rows, rows_of(up)};
  const auto width = rows.size(1) / 2;
  return {rows.narrow(1, 0, width), rows.narrow(1, width, width)};
}

class FusedGate : public torch::autograd::Function<FusedGate> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate,
                            const std::optional<at::Tensor>& given_up, Gate activation) {
    const at::Tensor up = given_up.value_or(at::Tensor());
    const auto [gates, ups] = gate_rows(gate.detach(), up.defined() ? up.detach() : up);
    const auto rows = gates.size(0), width = gates.size(1);
    auto sizes = gate.sizes().vec();
    sizes.back() = width;
    const at::Tensor results = at::empty(sizes, gate.options().requires_grad(false));
    gate_kernel("gated", gate.device(), gate.scalar_type(), activation)
        ->launch(gate_grid(results.numel()), data_of(gates), data_of(ups), data_to(results),
                 GateStrides{gates.stride(0), ups.stride(0)}, rows, static_cast<int>(width));
    context->save_for_backward({gates, ups});
    context->saved_data["sizes"] = gate.sizes().vec();
    context->saved_data["is_packed"] = !up.defined();
    context->saved_data["activation"] = static_cast<std::int64_t>(activation);
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivatives("a gated layer");
    const auto saved = context->get_saved_variables();
    const at::Tensor &gates = saved[0], &ups = saved[1];
    const auto activation = static_cast<Gate>(context->saved_data["activation"].toInt());
    const bool is_packed = context->saved_data["is_packed"].toBool();
    const auto sizes = context->saved_data["sizes"].toIntVector();
    const auto rows = gates.size(0), width = gates.size(1);
    const at::Tensor given = readable(gradients[0], gates.scalar_type());
    const at::Tensor both =
        at::empty({is_packed ? rows : 2 * rows, is_packed ? 2 * width : width}, gates.options());
    const at::Tensor by_gate = is_packed ? both.narrow(1, 0, width) : both.narrow(0, 0, rows),
                     by_up = is_packed ? both.narrow(1, width, width) : both.narrow(0, rows, rows);
    gate_kernel("gated_backward", gates.device(), gates.scalar_type(), activation)
        ->launch(gate_grid(given.numel()), data_of(given), data_of(gates), data_of(ups), data_to(by_gate),
                 data_to(by_up), GateStrides{gates.stride(0), ups.stride(0)}, both.stride(0), rows,
                 static_cast<int>(width));
    if (is_packed) return {both.view(sizes), {}, {}};
    return {by_gate.view(sizes), by_up.view(sizes), {}};
  }
};

/// Of two blocks, the second of which is not full: of a gate and another tensor, and of both in one.
void check_gate(Gate activation, at::ScalarType dtype, const at::Device& device) {
  constexpr std::int64_t kRows = 90, kWidth = 24;
  const auto reference = [&](const at::Tensor& gate, const at::Tensor& up) {
    if (activation == Gate::silu) return Tensors{at::silu(gate * 3) * up};
    return Tensors{at::gelu(gate * 3, activation == Gate::gelu ? "none" : "tanh") * up};
  };
  compare({.inputs = {waves({kRows, kWidth}, dtype, device, 1), waves({kRows, kWidth}, dtype, device, 2)},
           .fused =
               [&](const Tensors& given) {
                 return Tensors{FusedGate::apply(given[0] * 3, std::optional(given[1]), activation)};
               },
           .reference = [&](const Tensors& given) { return reference(given[0], given[1]); }});
  compare({.inputs = {waves({kRows, 2 * kWidth}, dtype, device, 3)},
           .fused =
               [&](const Tensors& given) {
                 return Tensors{FusedGate::apply(given[0] * 3, std::nullopt, activation)};
               },
           .reference =
               [&](const Tensors& given) {
                 const auto halves = given[0].chunk(2, -1);
                 return reference(halves[0], halves[1] * 3);
               }});
}

const char* gate_name(Gate activation) {
  return activation == Gate::silu ? "SiLU" : activation == Gate::gelu ? "GELU" : "GELU by tanh";
}

}  // namespace

bool takes_gate(const at::Tensor& gate, const at::Tensor& up, Gate activation) {
  const auto dtype = fused_dtype(gate);
  if (!dtype || gate.scalar_type() != *dtype || gate.dim() < 1 || gate.numel() == 0) return false;
  if (up.defined() &&
      (up.scalar_type() != *dtype || up.sizes() != gate.sizes() || up.device() != gate.device()))
    return false;
  const auto device = gate.device();
  if (gate.size(-1) % (up.defined() ? kGatePack : 2 * kGatePack) != 0) return false;
  thread_local Remembered<bool, int, at::ScalarType, Gate> known;
  return known.get({device.index(), *dtype, activation}, [&] {
    return gate_kernel("gated", device, *dtype, activation) != nullptr &&
           gate_kernel("gated_backward", device, *dtype, activation) != nullptr &&
           is_proven(fmt::format("gates of {} in {}", gate_name(activation), cuda_type(*dtype)), device,
                     [&] { check_gate(activation, *dtype, device); });
  });
}

at::Tensor activate_gate(const at::Tensor& gate, const at::Tensor& up, Gate activation) {
  return FusedGate::apply(gate, up.defined() ? std::optional(up) : std::nullopt, activation);
}

}  // namespace lockstep::kernels
