#include "lockstep/train/onednn_matmul.hpp"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

#include "lockstep/core/error.hpp"

namespace at::native {

/// result = beta * result + alpha * a @ b, for matrices or batches of matrices. A function of libtorch_cpu
/// that none of LibTorch's installed headers declares (aten/src/ATen/native/mkldnn/Matmul.h does).
__attribute__((weak, visibility("default"))) void mkldnn_matmul(const Tensor& a, const Tensor& b,
                                                                const Tensor& result, float beta,
                                                                float alpha);

}  // namespace at::native

namespace lockstep {
namespace {

using at::Scalar;
using at::Tensor;

constexpr const char* kVariable = "LOCKSTEP_ONEDNN_MATMUL";
/// Number of multiplications from which the cost of a oneDNN call, about 10 us, is negligible.
constexpr std::int64_t kLarge = 1 << 21;

bool is_plain(const Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && tensor.device().is_cpu() && tensor.layout() == at::kStrided &&
         !tensor.is_neg();
}

/// Whether oneDNN computes a product of tensors with `dims` dimensions. Shapes that do not match are left to
/// LibTorch, which rejects them.
bool suits(const Tensor& a, const Tensor& b, std::int64_t dims) {
  if (!is_plain(a) || !is_plain(b) || a.dim() != dims || b.dim() != dims) return false;
  if (a.size(-1) != b.size(-2) || (dims == 3 && a.size(0) != b.size(0))) return false;
  return a.numel() * b.size(-1) >= kLarge && at::globalContext().userEnabledMkldnn();
}

/// Whether the product is added to `sum` unscaled.
bool suits_sum(const Tensor& sum, const Scalar& beta, const Scalar& alpha) {
  return is_plain(sum) && beta.toDouble() == 1 && alpha.toDouble() == 1;
}

std::vector<std::int64_t> sizes_of_product(const Tensor& a, const Tensor& b) {
  auto sizes = a.sizes().vec();
  sizes.back() = b.size(-1);
  return sizes;
}

Tensor product(const Tensor& a, const Tensor& b) {
  Tensor result = at::empty(sizes_of_product(a, b), a.options());
  at::native::mkldnn_matmul(a, b, result, 0, 1);
  return result;
}

Tensor product_and(const Tensor& sum, const Tensor& a, const Tensor& b) {
  Tensor result = at::empty(sizes_of_product(a, b), a.options());
  result.copy_(sum.expand_as(result));
  at::native::mkldnn_matmul(a, b, result, 1, 1);
  return result;
}

Tensor mm(const Tensor& a, const Tensor& b) { return suits(a, b, 2) ? product(a, b) : at::cpu::mm(a, b); }

Tensor bmm(const Tensor& a, const Tensor& b) { return suits(a, b, 3) ? product(a, b) : at::cpu::bmm(a, b); }

Tensor addmm(const Tensor& sum, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  if (suits(a, b, 2) && suits_sum(sum, beta, alpha)) return product_and(sum, a, b);
  return at::cpu::addmm(sum, a, b, beta, alpha);
}

Tensor baddbmm(const Tensor& sum, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  if (suits(a, b, 3) && suits_sum(sum, beta, alpha)) return product_and(sum, a, b);
  return at::cpu::baddbmm(sum, a, b, beta, alpha);
}

struct Silence final : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

/// Replaces LibTorch's own kernels; silences its warning about that.
void replace_kernels() {
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, "onednn_matmul.cpp",
                                __LINE__);
  library.impl("mm", TORCH_FN(mm));
  library.impl("bmm", TORCH_FN(bmm));
  library.impl("addmm", TORCH_FN(addmm));
  library.impl("baddbmm", TORCH_FN(baddbmm));
}

/// LibTorch's own requirement for calling oneDNN on a CPU; without it, mkldnn_matmul throws.
bool has_instructions() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq");
#else
  return false;
#endif
}

bool is_faster_here(const Environment& environment) {
  for (const char* name : {"ATEN_CPU_CAPABILITY", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA"}) {
    if (find_variable(environment, name)) return false;
  }
#if defined(__x86_64__)
  return !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

bool is_wanted(const Environment& environment) {
  const auto value = find_variable(environment, kVariable);
  if (!value) return is_faster_here(environment);
  if (*value == "1" || *value == "0") return *value == "1";
  throw UsageError(std::string("environment variable ") + kVariable + "='" + std::string(*value) +
                   "': expected 0 or 1");
}

}  // namespace

bool use_onednn_matmul(const Environment& environment) {
  if (!is_wanted(environment) || !has_instructions()) return false;
  if (!at::globalContext().hasMKLDNN() || &at::native::mkldnn_matmul == nullptr) return false;
  static const bool done = (replace_kernels(), true);
  return done;
}

}  // namespace lockstep
