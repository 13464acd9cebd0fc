#include "comm/transport/tensor_memory.hpp"

#include <fmt/core.h>

#include <numeric>

#include "lockstep/comm/reduce_op.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

using Tensors = std::vector<at::Tensor>;

struct DtypeNames {
  at::ScalarType theirs;
  shm::Dtype ours;
};
constexpr DtypeNames kDtypes[] = {{at::kByte, shm::Dtype::u8},       {at::kChar, shm::Dtype::i8},
                                  {at::kShort, shm::Dtype::i16},     {at::kInt, shm::Dtype::i32},
                                  {at::kLong, shm::Dtype::i64},      {at::kHalf, shm::Dtype::f16},
                                  {at::kBFloat16, shm::Dtype::bf16}, {at::kFloat, shm::Dtype::f32},
                                  {at::kDouble, shm::Dtype::f64},    {at::kBool, shm::Dtype::boolean}};

// The reductions of c10d, of the public interface and of src/shm have the same numbers, so that no conversion
// table is needed.
using RedOp = c10d::ReduceOp::RedOpType;
template <RedOp theirs, ReduceOp ours, shm::Reduction shared>
constexpr bool kSame = static_cast<int>(theirs) == static_cast<int>(ours) &&
                       static_cast<int>(theirs) == static_cast<int>(shared);
static_assert(kSame<RedOp::SUM, ReduceOp::sum, shm::Reduction::sum> &&
              kSame<RedOp::AVG, ReduceOp::avg, shm::Reduction::avg> &&
              kSame<RedOp::PRODUCT, ReduceOp::product, shm::Reduction::product> &&
              kSame<RedOp::MIN, ReduceOp::min, shm::Reduction::min> &&
              kSame<RedOp::MAX, ReduceOp::max, shm::Reduction::max> &&
              kSame<RedOp::BAND, ReduceOp::bit_and, shm::Reduction::bit_and> &&
              kSame<RedOp::BOR, ReduceOp::bit_or, shm::Reduction::bit_or> &&
              kSame<RedOp::BXOR, ReduceOp::bit_xor, shm::Reduction::bit_xor>);

}  // namespace

shm::Dtype dtype_of(at::ScalarType type) {
  for (const auto& [theirs, ours] : kDtypes) {
    if (theirs == c10::toRealValueType(type)) return ours;
  }
  return shm::Dtype::bytes;
}

at::ScalarType scalar_type_of(shm::Dtype dtype) {
  for (const auto& [theirs, ours] : kDtypes) {
    if (ours == dtype && theirs != at::kBool) return theirs;
  }
  return at::kByte;
}

shm::Reduction reduction_of(const c10d::ReduceOp& op) {
  const auto type = static_cast<c10d::ReduceOp::RedOpType>(op);
  if (type <= c10d::ReduceOp::BXOR) return static_cast<shm::Reduction>(type);
  throw UsageError(
      "this reduction is for tensors of a GPU only: use sum, avg, product, min, max or one of bits");
}

shm::Reduction reduction_of(const c10d::ReduceOp& op, const at::Tensor& tensor) {
  using shm::Reduction;
  const auto reduction = reduction_of(op);
  if (!tensor.defined()) return reduction;
  const bool is_linear = reduction == Reduction::sum || reduction == Reduction::avg;
  const bool is_of_bits =
      reduction == Reduction::bit_and || reduction == Reduction::bit_or || reduction == Reduction::bit_xor;
  const bool is_defined = tensor.is_complex() ? is_linear : !(is_of_bits && tensor.is_floating_point());
  if (is_defined && dtype_of(tensor.scalar_type()) != shm::Dtype::bytes) return reduction;
  throw UsageError(fmt::format("the reduction '{}' is not defined for {}{}", shm::name_of(reduction),
                               c10::toString(tensor.scalar_type()),
                               tensor.is_complex() ? ": use sum or avg" : ""));
}

shm::Elements elements_of(const char* operation, const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu() || tensor.layout() != at::kStrided ||
      !tensor.is_non_overlapping_and_dense()) {
    throw UsageError(fmt::format("{}: expected a dense CPU tensor that is one piece of memory", operation));
  }
  if (tensor.is_conj() || tensor.is_neg()) {
    throw UsageError(
        fmt::format("{}: a tensor is a conjugate or negative view, whose memory holds other values; pass "
                    "tensor.resolve_conj().resolve_neg()",
                    operation));
  }
  const auto dtype = dtype_of(tensor.scalar_type());
  return {tensor.nbytes() / shm::size_of(dtype), dtype};
}

void check_strided(const char* operation, const at::Tensor& tensor) {
  if (tensor.layout() == at::kStrided) return;
  throw UsageError(
      fmt::format("{}: a tensor is sparse, which only all_reduce takes; pass tensor.to_dense()", operation));
}

void check_in_one_piece(const char* operation, const at::Tensor& tensor) {
  check_strided(operation, tensor);
  if (tensor.is_non_overlapping_and_dense()) return;
  throw UsageError(
      fmt::format("{}: a tensor is not contiguous in memory (a strided or expanded view); pass "
                  "tensor.contiguous()",
                  operation));
}

const at::Tensor& single(const char* operation, const Tensors& tensors) {
  if (tensors.size() == 1) return tensors.front();
  throw UsageError(fmt::format("{}: expected one tensor, but got {}", operation, tensors.size()));
}

std::vector<void*> memory_of(const char* operation, const Tensors& tensors, shm::Elements elements) {
  std::vector<void*> memory;
  for (const auto& tensor : tensors) {
    const auto found = elements_of(operation, tensor);
    if (found.dtype != elements.dtype || found.count != elements.count) {
      throw UsageError(fmt::format("{}: expected tensors of {} elements of {}, but one has {} of {}",
                                   operation, elements.count, shm::name_of(elements.dtype), found.count,
                                   shm::name_of(found.dtype)));
    }
    memory.push_back(tensor.data_ptr());
  }
  return memory;
}

std::vector<void*> pieces_of(const at::Tensor& tensor, shm::Elements piece, int count) {
  std::vector<void*> memory;
  auto* next = static_cast<std::byte*>(tensor.data_ptr());
  for (int i = 0; i < count; ++i, next += piece.bytes()) memory.push_back(next);
  return memory;
}

std::vector<std::int64_t> rows_of(const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                                  int ranks) {
  const std::int64_t all = tensor.dim() == 0 ? 1 : tensor.size(0);
  std::vector<std::int64_t> rows = splits;
  if (rows.empty()) rows.assign(static_cast<std::size_t>(ranks), all / ranks);
  const bool fit = rows.size() == static_cast<std::size_t>(ranks) &&
                   std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) == all;
  if (fit) return rows;
  throw UsageError(fmt::format(
      "all_to_all: the split sizes must be one for each of {} ranks and add up to the tensor's first "
      "dimension, {}; without split sizes that must be a multiple of the number of ranks",
      ranks, all));
}

std::vector<shm::Part> parts_of(const at::Tensor& tensor, const std::vector<std::int64_t>& rows) {
  const auto elements = elements_of("all_to_all", tensor);
  const auto all = static_cast<std::size_t>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
  const std::size_t row = all == 0 ? 0 : elements.count / all;
  std::vector<shm::Part> parts;
  auto* next = static_cast<std::byte*>(tensor.data_ptr());
  for (const auto count : rows) {
    const std::size_t part = static_cast<std::size_t>(count) * row;
    parts.push_back({next, part});
    next += part * shm::size_of(elements.dtype);
  }
  return parts;
}

std::vector<shm::Part> parts_of(const Tensors& tensors) {
  std::vector<shm::Part> parts;
  for (const auto& tensor : tensors)
    parts.push_back({tensor.data_ptr(), elements_of("all_to_all", tensor).count});
  return parts;
}

void check_multiple(const char* operation, const char* role, const at::Tensor& whole, const char* piece_role,
                    shm::Elements piece, int ranks) {
  const auto found = elements_of(operation, whole);
  if (found.dtype == piece.dtype && found.count == piece.count * static_cast<std::size_t>(ranks)) return;
  throw UsageError(fmt::format("{0}: the {1} must be of the {2}'s dtype and as large as all {2}s", operation,
                               role, piece_role));
}

void check_count(const char* operation, const char* role, const Tensors& tensors, int ranks) {
  if (tensors.size() == static_cast<std::size_t>(ranks)) return;
  throw UsageError(fmt::format("{}: expected {} {} tensors, one for each rank of the group, but got {}",
                               operation, ranks, role, tensors.size()));
}

void check_lists(const Tensors& outputs, const Tensors& inputs, int ranks) {
  check_count("all_to_all", "output", outputs, ranks);
  check_count("all_to_all", "input", inputs, ranks);
  const auto expected = inputs.front().scalar_type();
  for (const auto* list : {&outputs, &inputs}) {
    for (const auto& tensor : *list) {
      if (tensor.scalar_type() == expected) continue;
      throw UsageError(fmt::format("all_to_all: expected tensors of one dtype, but got {} and {}",
                                   c10::toString(expected), c10::toString(tensor.scalar_type())));
    }
  }
}

Tensors contiguous(const Tensors& tensors) {
  Tensors result;
  result.reserve(tensors.size());
  for (const auto& tensor : tensors) result.push_back(tensor.contiguous());
  return result;
}

}  // namespace lockstep::comm
