#include "kernels/rope.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/custom_function.h>

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

constexpr int kRopeThreads = 256;
/// Elements that a thread reads at once.
constexpr std::int64_t kRopePack = 8;

const CudaKernel* rope_kernel(const at::Tensor& heads, const at::Tensor& cos) {
  thread_local Remembered<const CudaKernel*, int, at::ScalarType, at::ScalarType> known;
  return known.get({heads.device().index(), heads.scalar_type(), cos.scalar_type()}, [&] {
    return find_kernel(
        "rope", fmt::format("rope<{}, {}>", cuda_type(heads.scalar_type()), cuda_type(cos.scalar_type())),
        heads.device());
  });
}

RopeStrides strides_of(const at::Tensor& heads) {
  if (!heads.defined()) return {};
  return {.row = heads.stride(0), .head = heads.stride(1), .token = heads.stride(2)};
}

/// Whether the kernel can read it where it lies.
bool is_readable(const at::Tensor& heads) {
  const auto steps = strides_of(heads);
  return heads.stride(3) == 1 && is_aligned(heads) && steps.row % kRopePack == 0 &&
         steps.head % kRopePack == 0 && steps.token % kRopePack == 0;
}

at::Tensor readable_heads(const at::Tensor& heads, at::ScalarType dtype) {
  if (!heads.defined()) return heads;
  const at::Tensor narrow = heads.to(dtype);
  if (is_readable(narrow)) return narrow;
  const at::Tensor dense = narrow.contiguous();
  return is_readable(dense) ? dense : dense.clone();
}

/// [rows, heads, tokens, size], the heads of a token side by side.
at::Tensor heads_like(const at::Tensor& heads) {
  if (!heads.defined()) return {};
  const auto count = heads.size(1), tokens = heads.size(2), size = heads.size(3);
  // No view, which could not be changed in place.
  return at::empty_strided(heads.sizes(), {tokens * count * size, size, count * size, 1},
                           heads.options().requires_grad(false));
}

TurnedHeads turn(const at::Tensor& query, const at::Tensor& key, const at::Tensor& cos, const at::Tensor& sin,
                 float direction) {
  const at::Tensor& given = query.defined() ? query : key;
  TurnedHeads turned{.query = heads_like(query), .key = heads_like(key)};
  const std::int64_t rotated = cos.size(-1), size = given.size(3), tokens = given.size(2);
  const auto heads_of = [](const at::Tensor& heads) { return heads.defined() ? heads.size(1) : 0; };
  const RopeShape shape{.rows = given.size(0),
                        .tokens = tokens,
                        .query = strides_of(query),
                        .key = strides_of(key),
                        .rotation_row = cos.dim() == 4 && cos.size(0) > 1 ? tokens * rotated : 0,
                        .query_heads = static_cast<int>(heads_of(query)),
                        .key_heads = static_cast<int>(heads_of(key)),
                        .size = static_cast<int>(size),
                        .rotated = static_cast<int>(rotated)};
  const std::int64_t items = rotated / 2 / kRopePack + (size - rotated) / kRopePack;
  const std::int64_t count = shape.rows * tokens * (heads_of(query) + heads_of(key)) * items;
  rope_kernel(given, cos)
      ->launch({.blocks = (count + kRopeThreads - 1) / kRopeThreads, .threads = kRopeThreads}, data_of(query),
               data_of(key), data_to(turned.query), data_to(turned.key), data_of(cos), data_of(sin), shape,
               direction);
  return turned;
}

class FusedRope : public torch::autograd::Function<FusedRope> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& query, const at::Tensor& key,
                               const at::Tensor& cos, const at::Tensor& sin) {
    const auto dtype = query.scalar_type();
    const at::Tensor read_cos = readable(cos, cos.scalar_type()), read_sin = readable(sin, sin.scalar_type());
    const TurnedHeads turned =
        turn(readable_heads(query, dtype), readable_heads(key, dtype), read_cos, read_sin, 1);
    context->save_for_backward({read_cos, read_sin});
    context->saved_data["dtype"] = static_cast<std::int64_t>(dtype);
    context->set_materialize_grads(false);
    return {turned.query, turned.key};
  }

  /// What was turned is turned back.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivatives("rotary positions");
    const auto saved = context->get_saved_variables();
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    if (!gradients[0].defined() && !gradients[1].defined()) return {{}, {}, {}, {}};
    const TurnedHeads turned = turn(readable_heads(gradients[0], dtype), readable_heads(gradients[1], dtype),
                                    saved[0], saved[1], -1);
    return {turned.query, turned.key, {}, {}};
  }
};

/// Heads of 40 elements, of which 32 are rotated, in two blocks: side by side, and one token after another as
/// a product gives them; with angles for all rows, and with those of each row.
void check_rope(at::ScalarType dtype, at::ScalarType rotation, const at::Device& device) {
  constexpr std::int64_t kTokens = 9, kSize = 40;
  for (const bool has_rows : {false, true}) {
    const at::Tensor angles = has_rows ? waves({2, 1, kTokens, 16}, at::kDouble, device, 3).detach()
                                       : waves({kTokens, 16}, at::kDouble, device, 3).detach();
    const at::Tensor both = at::cat({angles, angles}, -1);
    const at::Tensor cos = both.cos().to(rotation), sin = both.sin().to(rotation);
    const auto lie = [&](const at::Tensor& heads) { return has_rows ? heads.transpose(1, 2) : heads; };
    const auto heads_of = [&](std::int64_t count, double phase) {
      return has_rows ? waves({2, kTokens, count, kSize}, dtype, device, phase)
                      : waves({2, count, kTokens, kSize}, dtype, device, phase);
    };
    const auto turned = [&](const at::Tensor& given) {
      const at::Tensor heads = lie(given);
      const at::Tensor first = heads.narrow(-1, 0, 16), second = heads.narrow(-1, 16, 16);
      const at::Tensor c = cos.narrow(-1, 0, 16).to(at::kDouble), s = sin.narrow(-1, 0, 16).to(at::kDouble);
      return at::cat({first * c - second * s, second * c + first * s, heads.narrow(-1, 32, kSize - 32)}, -1);
    };
    compare(
        {.inputs = {heads_of(4, 1), heads_of(2, 2)},
         .fused =
             [&](const Tensors& given) { return FusedRope::apply(lie(given[0]), lie(given[1]), cos, sin); },
         .reference =
             [&](const Tensors& given) {
               return Tensors{turned(given[0]), turned(given[1])};
             }});
  }
}

bool is_rope_usable(const at::Tensor& heads, const at::Tensor& cos) {
  const auto device = heads.device();
  const auto dtype = heads.scalar_type(), rotation = cos.scalar_type();
  thread_local Remembered<bool, int, at::ScalarType, at::ScalarType> known;
  return known.get({device.index(), dtype, rotation}, [&] {
    return rope_kernel(heads, cos) != nullptr &&
           is_proven(fmt::format("rotary positions in {} by {}", cuda_type(dtype), cuda_type(rotation)),
                     device, [&] { check_rope(dtype, rotation, device); });
  });
}

}  // namespace

bool takes_rope(const RopeTask& task) {
  const auto& [query, key, cos, sin] = task;
  if (!cos.defined() || query.dim() != 4 || key.dim() != 4 || query.numel() == 0 || key.numel() == 0)
    return false;
  const auto dtype = fused_dtype(query);
  if (!dtype || query.scalar_type() != *dtype || key.scalar_type() != *dtype) return false;
  const auto rows = query.size(0), tokens = query.size(2), size = query.size(3), rotated = cos.size(-1);
  const bool is_alike = key.size(0) == rows && key.size(2) == tokens && key.size(3) == size &&
                        key.device() == query.device() && cos.device() == query.device() &&
                        sin.sizes() == cos.sizes() && sin.scalar_type() == cos.scalar_type();
  const bool is_shared = cos.dim() == 2 && cos.size(0) == tokens;
  const bool is_of_rows = cos.dim() == 4 && (cos.size(0) == rows || cos.size(0) == 1) && cos.size(1) == 1 &&
                          cos.size(2) == tokens;
  const bool fits = size % kRopePack == 0 && rotated % (2 * kRopePack) == 0 && rotated <= size;
  const bool is_typed = cos.scalar_type() == at::kFloat || cos.scalar_type() == *dtype;
  return is_alike && (is_shared || is_of_rows) && fits && is_typed && !cos.requires_grad() &&
         is_rope_usable(query, cos);
}

TurnedHeads rope(const RopeTask& task) {
  const auto turned = FusedRope::apply(task.query, task.key, task.cos, task.sin);
  return {.query = turned[0], .key = turned[1]};
}

}  // namespace lockstep::kernels
