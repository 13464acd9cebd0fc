#include "tensor_facts.hpp"

namespace lockstep::comm {

const char* dtype_name(at::ScalarType dtype) noexcept { return c10::toString(dtype); }

const char* reduce_name(const c10d::ReduceOp& op) noexcept {
  constexpr const char* kNames[] = {"sum", "avg", "product", "min", "max", "bit_and", "bit_or", "bit_xor"};
  const auto number = static_cast<std::size_t>(op.op_);
  return number < std::size(kNames) ? kNames[number] : "premul_sum";
}

OperationFacts facts_of(const char* name, const at::Tensor& tensor) {
  OperationFacts facts{.name = name};
  if (!tensor.defined() || tensor.layout() != at::kStrided) return facts;
  facts.dtype = dtype_name(tensor.scalar_type());
  facts.elements = tensor.numel();
  facts.bytes = facts.elements * static_cast<std::int64_t>(tensor.element_size());
  const auto sizes = tensor.sizes();
  facts.dimensions = static_cast<std::int32_t>(sizes.size());
  for (std::size_t i = 0; i < std::min(sizes.size(), facts.sizes.size()); ++i) facts.sizes[i] = sizes[i];
  return facts;
}

OperationFacts facts_of(const char* name, const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return {.name = name, .tensors = 0};
  OperationFacts facts = facts_of(name, tensors.front());
  facts.tensors = static_cast<std::int32_t>(tensors.size());
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    facts.elements += tensors[i].numel();
    facts.bytes += tensors[i].numel() * static_cast<std::int64_t>(tensors[i].element_size());
  }
  return facts;
}

}  // namespace lockstep::comm
