#include "lockstep/comm/collectives_with_gradients.hpp"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct GroupOfGraph : torch::CustomClassHolder {
  explicit GroupOfGraph(ProcessGroup held) : group(std::move(held)) {}
  ProcessGroup group;
};

void keep(AutogradContext& context, const ProcessGroup& group) {
  context.saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<GroupOfGraph>(group));
}

ProcessGroup group_of(AutogradContext& context) {
  const auto capsule = context.saved_data["group"].toCapsule();
  return static_cast<const GroupOfGraph*>(capsule.get())->group;
}

std::vector<std::int64_t> with_first(at::IntArrayRef sizes, std::int64_t first) {
  std::vector<std::int64_t> result = sizes.vec();
  result.front() = first;
  return result;
}

struct ReduceScatterRows;

struct GatherRows : torch::autograd::Function<GatherRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows, const ProcessGroup& group) {
    keep(*context, group);
    at::Tensor all = at::empty(with_first(rows.sizes(), rows.size(0) * group.size()), rows.options());
    group.all_gather_into_tensor(all, rows.contiguous());
    return all;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients);
};

struct ReduceScatterRows : torch::autograd::Function<ReduceScatterRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& all, const ProcessGroup& group) {
    keep(*context, group);
    at::Tensor rows = at::empty(with_first(all.sizes(), all.size(0) / group.size()), all.options());
    group.reduce_scatter_tensor(rows, all.contiguous());
    return rows;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {GatherRows::apply(gradients[0], group_of(*context)), {}};
  }
};

variable_list GatherRows::backward(AutogradContext* context, const variable_list& gradients) {
  return {ReduceScatterRows::apply(gradients[0], group_of(*context)), {}};
}

struct SumOfRanks : torch::autograd::Function<SumOfRanks> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, const ProcessGroup& group) {
    keep(*context, group);
    at::Tensor sum = tensor.clone(at::MemoryFormat::Contiguous);
    group.all_reduce(sum);
    return sum;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {SumOfRanks::apply(gradients[0], group_of(*context)), {}};
  }
};

}  // namespace

at::Tensor all_gather_with_gradients(const ProcessGroup& group, const at::Tensor& rows) {
  if (rows.dim() == 0)
    throw UsageError(
        "all_gather_with_gradients: expected a tensor of one dimension or more: pass unsqueeze(0)");
  return GatherRows::apply(rows, group);
}

at::Tensor all_reduce_with_gradients(const ProcessGroup& group, const at::Tensor& tensor) {
  return SumOfRanks::apply(tensor, group);
}

}  // namespace lockstep
