#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "lockstep/core/error.hpp"
#include "process_group_impl.hpp"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Several tensors laid one after the other.
struct Flat {
  at::Tensor buffer;
  std::vector<std::int64_t> sizes;
};

Flat flat_space_for(const Tensors& tensors) {
  Flat flat;
  std::int64_t total = 0;
  for (const auto& tensor : tensors) {
    flat.sizes.push_back(tensor.numel());
    total += tensor.numel();
  }
  flat.buffer = at::empty({total}, tensors.front().options());
  return flat;
}

Flat flattened(const Tensors& tensors) {
  Flat flat;
  Tensors rows;
  for (const auto& tensor : tensors) {
    rows.push_back(tensor.detach().reshape({-1}));
    flat.sizes.push_back(tensor.numel());
  }
  flat.buffer = at::cat(rows);
  return flat;
}

void copy_out(const Flat& flat, const Tensors& tensors) {
  std::int64_t start = 0;
  for (const auto& tensor : tensors) {
    tensor.detach().copy_(flat.buffer.narrow(0, start, tensor.numel()).view(tensor.sizes()));
    start += tensor.numel();
  }
}

void check_dtypes(const Tensors& outputs, const Tensors& inputs) {
  const auto expected = inputs.front().scalar_type();
  for (const auto* list : {&outputs, &inputs}) {
    for (const auto& tensor : *list) {
      if (tensor.scalar_type() == expected) continue;
      throw UsageError(std::string("all_to_all: expected tensors of one dtype, but got ") +
                       c10::toString(expected) + " and " + c10::toString(tensor.scalar_type()));
    }
  }
}

}  // namespace

/// Gloo exchanges slices of one tensor only, so the lists are laid into one; NCCL would group the same
/// messages.
Work ProcessGroup::all_to_all_async(const Tensors& outputs, const Tensors& inputs) const {
  impl_->check_count("all_to_all", "output", outputs);
  impl_->check_count("all_to_all", "input", inputs);
  check_dtypes(outputs, inputs);
  Flat from = flattened(inputs);
  Flat to = flat_space_for(outputs);
  Work work = all_to_all_single_async(to.buffer, from.buffer, to.sizes, from.sizes);
  return Work(std::make_shared<Work::Impl>(std::move(work), [to, outputs] { copy_out(to, outputs); }));
}

}  // namespace lockstep
