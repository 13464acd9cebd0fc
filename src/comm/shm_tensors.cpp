#include "shm_tensors.hpp"

#include <numeric>
#include <string>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {

shm::Dtype dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return shm::Dtype::u8;
    case at::kChar:
      return shm::Dtype::i8;
    case at::kShort:
      return shm::Dtype::i16;
    case at::kInt:
      return shm::Dtype::i32;
    case at::kLong:
      return shm::Dtype::i64;
    case at::kHalf:
      return shm::Dtype::f16;
    case at::kBFloat16:
      return shm::Dtype::bf16;
    case at::kFloat:
      return shm::Dtype::f32;
    case at::kDouble:
      return shm::Dtype::f64;
    case at::kBool:
      return shm::Dtype::boolean;
    default:
      return shm::Dtype::bytes;
  }
}

shm::Elements elements_of(const char* operation, const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu() || tensor.layout() != at::kStrided ||
      !tensor.is_non_overlapping_and_dense()) {
    throw UsageError(std::string(operation) + ": expected a dense CPU tensor that is one piece of memory");
  }
  const auto dtype = dtype_of(tensor.scalar_type());
  const auto count = static_cast<std::size_t>(tensor.numel());
  return {dtype == shm::Dtype::bytes ? count * tensor.element_size() : count, dtype};
}

const at::Tensor& single(const char* operation, const std::vector<at::Tensor>& tensors) {
  if (tensors.size() == 1) return tensors.front();
  throw UsageError(std::string(operation) + ": expected one tensor, but got " +
                   std::to_string(tensors.size()));
}

Held<void*> memory_of(const char* operation, const std::vector<at::Tensor>& tensors, shm::Elements elements) {
  Held<void*> memory{tensors, {}};
  for (const auto& tensor : tensors) {
    const auto found = elements_of(operation, tensor);
    if (found.dtype != elements.dtype || found.count != elements.count) {
      throw UsageError(std::string(operation) + ": expected tensors of " + std::to_string(elements.count) +
                       " elements of " + shm::name_of(elements.dtype) + ", but one has " +
                       std::to_string(found.count) + " of " + shm::name_of(found.dtype));
    }
    memory.places.push_back(tensor.data_ptr());
  }
  return memory;
}

std::vector<void*> pieces_of(const at::Tensor& tensor, shm::Elements piece, int count) {
  std::vector<void*> memory;
  auto* next = static_cast<std::byte*>(tensor.data_ptr());
  for (int i = 0; i < count; ++i, next += piece.bytes()) memory.push_back(next);
  return memory;
}

Held<shm::Part> parts_of(const at::Tensor& tensor, const std::vector<std::int64_t>& splits, int count) {
  const auto elements = elements_of("all_to_all", tensor);
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  std::vector<std::int64_t> lengths = splits;
  if (lengths.empty()) lengths.assign(static_cast<std::size_t>(count), rows / count);
  const bool fit = lengths.size() == static_cast<std::size_t>(count) &&
                   std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}) == rows;
  if (!fit) {
    throw UsageError("all_to_all: the split sizes must be one for each of " + std::to_string(count) +
                     " ranks and add up to the tensor's first dimension, " + std::to_string(rows) +
                     "; without split sizes that must be a multiple of the number of ranks");
  }
  const std::size_t row = rows == 0 ? 0 : elements.count / static_cast<std::size_t>(rows);
  Held<shm::Part> parts{{tensor}, {}};
  auto* next = static_cast<std::byte*>(tensor.data_ptr());
  for (const auto length : lengths) {
    const std::size_t part = static_cast<std::size_t>(length) * row;
    parts.places.push_back({next, part});
    next += part * shm::size_of(elements.dtype);
  }
  return parts;
}

Held<shm::Part> parts_of(const std::vector<at::Tensor>& tensors) {
  Held<shm::Part> parts{tensors, {}};
  for (const auto& tensor : tensors)
    parts.places.push_back({tensor.data_ptr(), elements_of("all_to_all", tensor).count});
  return parts;
}

}  // namespace lockstep::comm
