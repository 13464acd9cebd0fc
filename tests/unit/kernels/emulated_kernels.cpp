#include "unit/kernels/emulated_kernels.hpp"

#include <array>
#include <tuple>
#include <utility>

#include "support/block_emulator.hpp"

namespace lockstep::testing::emulated {

#include "kernels/cuda/arguments.cu"
#include "kernels/cuda/prelude.cu"
// The kernels.
#include "kernels/cuda/adam.cu"
#include "kernels/cuda/add_norm.cu"
#include "kernels/cuda/batch_norm.cu"
#include "kernels/cuda/column_sums.cu"
#include "kernels/cuda/column_totals.cu"
#include "kernels/cuda/cross_entropy.cu"
#include "kernels/cuda/embedding.cu"
#include "kernels/cuda/gated.cu"
#include "kernels/cuda/loss_factor.cu"
#include "kernels/cuda/rms_norm.cu"
#include "kernels/cuda/rope.cu"
#include "kernels/cuda/scaled_copies.cu"

}  // namespace lockstep::testing::emulated

namespace lockstep::testing {
namespace {

using Run = std::function<void(BlockEmulator&, const kernels::Grid&, void**)>;

template <class... Parameters, std::size_t... i>
void call(void (*kernel)(Parameters...), void** arguments, std::index_sequence<i...> /*places*/) {
  kernel(*static_cast<std::remove_cv_t<Parameters>*>(arguments[i])...);
}

template <class... Parameters>
Run emulate(void (*kernel)(Parameters...)) {
  return [kernel](BlockEmulator& emulator, const kernels::Grid& grid, void** arguments) {
    emulator.run({static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.blocks_y)},
                 static_cast<unsigned>(grid.threads),
                 [&] { call(kernel, arguments, std::index_sequence_for<Parameters...>()); });
  };
}

struct Emulated {
  std::string source;
  Run run;
};

#define LOCKSTEP_KERNEL(source, ...) \
  all.emplace(#__VA_ARGS__, Emulated{source, emulate(&emulated::__VA_ARGS__)})

#define LOCKSTEP_NORMS(type, packs)                                   \
  LOCKSTEP_KERNEL("add_norm", add_norm<type, packs>);                 \
  LOCKSTEP_KERNEL("add_norm", add_norm_backward<type, packs, false>); \
  LOCKSTEP_KERNEL("add_norm", add_norm_backward<type, packs, true>)

#define LOCKSTEP_RMS_NORMS(residual, type, packs)               \
  LOCKSTEP_KERNEL("rms_norm", rms_norm<residual, type, packs>); \
  LOCKSTEP_KERNEL("rms_norm", rms_norm_backward<residual, type, packs>)

#define LOCKSTEP_RMS_NORMS_OF(residual, type) \
  LOCKSTEP_RMS_NORMS(residual, type, 1);      \
  LOCKSTEP_RMS_NORMS(residual, type, 2);      \
  LOCKSTEP_RMS_NORMS(residual, type, 3);      \
  LOCKSTEP_RMS_NORMS(residual, type, 4)

#define LOCKSTEP_GATES(type, activation)             \
  LOCKSTEP_KERNEL("gated", gated<type, activation>); \
  LOCKSTEP_KERNEL("gated", gated_backward<type, activation>)

#define LOCKSTEP_KERNELS_OF(type)                               \
  LOCKSTEP_RMS_NORMS_OF(float, type);                           \
  LOCKSTEP_RMS_NORMS_OF(type, type);                            \
  LOCKSTEP_GATES(type, 0);                                      \
  LOCKSTEP_GATES(type, 1);                                      \
  LOCKSTEP_GATES(type, 2);                                      \
  LOCKSTEP_KERNEL("rope", rope<type, float>);                   \
  LOCKSTEP_KERNEL("rope", rope<type, type>);                    \
  LOCKSTEP_KERNEL("cross_entropy", cross_entropy<type, true>);  \
  LOCKSTEP_KERNEL("cross_entropy", cross_entropy<type, false>); \
  LOCKSTEP_KERNEL("column_sums", column_sums<type>);            \
  LOCKSTEP_KERNEL("column_sums", join_columns<type>);           \
  LOCKSTEP_KERNEL("column_sums", gelu_forward<type, true>);     \
  LOCKSTEP_KERNEL("column_sums", gelu_forward<type, false>);    \
  LOCKSTEP_KERNEL("column_sums", gelu_backward<type, true>);    \
  LOCKSTEP_KERNEL("column_sums", gelu_backward<type, false>);   \
  LOCKSTEP_NORMS(type, 1);                                      \
  LOCKSTEP_NORMS(type, 2);                                      \
  LOCKSTEP_NORMS(type, 3);                                      \
  LOCKSTEP_NORMS(type, 4)

std::map<std::string, Emulated> make_all() {
  using emulated::bf16, emulated::fp16;
  std::map<std::string, Emulated> all;
  LOCKSTEP_KERNEL("adam", adam<false, false, false>);
  LOCKSTEP_KERNEL("adam", adam<false, false, true>);
  LOCKSTEP_KERNEL("adam", adam<false, true, false>);
  LOCKSTEP_KERNEL("adam", adam<false, true, true>);
  LOCKSTEP_KERNEL("adam", adam<true, false, false>);
  LOCKSTEP_KERNEL("adam", adam<true, false, true>);
  LOCKSTEP_KERNEL("adam", adam<true, true, false>);
  LOCKSTEP_KERNEL("adam", adam<true, true, true>);
  LOCKSTEP_KERNEL("batch_norm", batch_norm_sums<bf16>);
  LOCKSTEP_KERNEL("batch_norm", batch_norm_sums<fp16>);
  LOCKSTEP_KERNEL("batch_norm", batch_norm_statistics<bf16>);
  LOCKSTEP_KERNEL("batch_norm", batch_norm_statistics<fp16>);
  LOCKSTEP_KERNEL("batch_norm", batch_norm_gradient_parts<float>);
#define LOCKSTEP_EACH_NORM(kernel, type)                     \
  LOCKSTEP_KERNEL("batch_norm", kernel<type, false, false>); \
  LOCKSTEP_KERNEL("batch_norm", kernel<type, false, true>);  \
  LOCKSTEP_KERNEL("batch_norm", kernel<type, true, false>);  \
  LOCKSTEP_KERNEL("batch_norm", kernel<type, true, true>)
  LOCKSTEP_EACH_NORM(batch_norm_apply, bf16);
  LOCKSTEP_EACH_NORM(batch_norm_apply, fp16);
  LOCKSTEP_EACH_NORM(batch_norm_gradient_sums, bf16);
  LOCKSTEP_EACH_NORM(batch_norm_gradient_sums, fp16);
  LOCKSTEP_EACH_NORM(batch_norm_gradients, bf16);
  LOCKSTEP_EACH_NORM(batch_norm_gradients, fp16);
#undef LOCKSTEP_EACH_NORM
  LOCKSTEP_KERNELS_OF(bf16);
  LOCKSTEP_KERNELS_OF(fp16);
  LOCKSTEP_KERNEL("column_totals", column_totals);
  LOCKSTEP_KERNEL("embedding", embed_tokens<float>);
  LOCKSTEP_KERNEL("embedding", place_gradients<float>);
  LOCKSTEP_KERNEL("embedding", type_gradients<float>);
  LOCKSTEP_KERNEL("embedding", word_gradients<float>);
  LOCKSTEP_KERNEL("loss_factor", multiply_gradients<bf16, bf16>);
  LOCKSTEP_KERNEL("loss_factor", multiply_gradients<bf16, float>);
#define LOCKSTEP_COPIES_OF(type)                                \
  LOCKSTEP_KERNEL("scaled_copies", scaled_copies<type, float>); \
  LOCKSTEP_KERNEL("scaled_copies", scaled_copies<type, bf16>);  \
  LOCKSTEP_KERNEL("scaled_copies", scaled_copies<type, fp16>)
  LOCKSTEP_COPIES_OF(float);
  LOCKSTEP_COPIES_OF(bf16);
  LOCKSTEP_COPIES_OF(fp16);
#undef LOCKSTEP_COPIES_OF
  return all;
}

#undef LOCKSTEP_KERNELS_OF
#undef LOCKSTEP_NORMS
#undef LOCKSTEP_GATES
#undef LOCKSTEP_RMS_NORMS_OF
#undef LOCKSTEP_RMS_NORMS
#undef LOCKSTEP_KERNEL

const std::map<std::string, Emulated>& all_emulated() {
  static const auto all = make_all();
  return all;
}

}  // namespace

class EmulatedKernels::Kernel final : public kernels::CudaKernel {
 public:
  Kernel(const std::string& instance, const Run& run, EmulatedKernels& device)
      : CudaKernel(instance), instance_(instance), run_(run), device_(device) {}

 private:
  void launch_with(const kernels::Grid& grid, void** arguments) const override {
    ++device_.launches_[instance_];
    if (device_.broken_.contains(instance_)) return;
    run_(*device_.emulator_, grid, arguments);
  }

  std::string instance_;
  const Run& run_;
  EmulatedKernels& device_;
};

EmulatedKernels::EmulatedKernels(unsigned seed) : emulator_(std::make_unique<BlockEmulator>(seed)) {
  kernels::set_kernel_device(this);
}
EmulatedKernels::~EmulatedKernels() { kernels::set_kernel_device(nullptr); }

const kernels::CudaKernel* EmulatedKernels::find(const std::string& source, const std::string& instance,
                                                 const at::Device& /*device*/) {
  const auto found = all_emulated().find(instance);
  if (found == all_emulated().end() || found->second.source != source)
    throw std::logic_error("the tests do not emulate " + source + ": " + instance);
  auto& kernel = kernels_[instance];
  if (!kernel) kernel = std::make_unique<Kernel>(instance, found->second.run, *this);
  return kernel.get();
}

int EmulatedKernels::multiprocessors(const at::Device& /*device*/) { return 3; }

std::vector<KernelInstance> kernel_instances() {
  std::vector<KernelInstance> list;
  for (const auto& [name, kernel] : all_emulated()) list.push_back({.source = kernel.source, .name = name});
  return list;
}

}  // namespace lockstep::testing
