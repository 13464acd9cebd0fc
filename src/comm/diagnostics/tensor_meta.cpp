#include "comm/diagnostics/tensor_meta.hpp"

namespace lockstep::comm {

const char* dtype_name(at::ScalarType dtype) noexcept { return c10::toString(dtype); }

const char* reduce_name(const c10d::ReduceOp& op) noexcept {
  constexpr const char* kNames[] = {"sum", "avg", "product", "min", "max", "bit_and", "bit_or", "bit_xor"};
  const auto number = static_cast<std::size_t>(op.op_);
  return number < std::size(kNames) ? kNames[number] : "premul_sum";
}

OpMeta meta_of(const char* name, const at::Tensor& tensor) {
  OpMeta meta{.name = name};
  if (!tensor.defined() || tensor.layout() != at::kStrided) return meta;
  meta.dtype = dtype_name(tensor.scalar_type());
  meta.elements = tensor.numel();
  meta.bytes = meta.elements * static_cast<std::int64_t>(tensor.element_size());
  const auto sizes = tensor.sizes();
  meta.dimensions = static_cast<std::int32_t>(sizes.size());
  for (std::size_t i = 0; i < std::min(sizes.size(), meta.sizes.size()); ++i) meta.sizes[i] = sizes[i];
  return meta;
}

OpMeta meta_of(const char* name, const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return {.name = name, .tensors = 0};
  OpMeta meta = meta_of(name, tensors.front());
  meta.tensors = static_cast<std::int32_t>(tensors.size());
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    meta.elements += tensors[i].numel();
    meta.bytes += tensors[i].numel() * static_cast<std::int64_t>(tensors[i].element_size());
  }
  return meta;
}

}  // namespace lockstep::comm
