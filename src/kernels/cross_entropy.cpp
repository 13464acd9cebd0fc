#include "kernels/cross_entropy.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <limits>

#include "kernels/cuda_kernel.hpp"
#include "kernels/fused_kernels.hpp"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 512;
/// Bytes of one access.
constexpr std::int64_t kAligned = 16;

const CudaKernel* kernel_of(const at::Tensor& logits, bool writes_gradients) {
  const std::string instance =
      "cross_entropy<" + cuda_type(logits.scalar_type()) + (writes_gradients ? ", true>" : ", false>");
  return find_kernel("cross_entropy", instance, logits.device());
}

/// `factor`: a float32 scalar by which gradients are multiplied; may be undefined.
CrossEntropy launch(const at::Tensor& logits, const CrossEntropyTask& task, bool writes_gradients,
                    const at::Tensor& factor) {
  const std::int64_t rows = logits.size(0);
  const auto options = logits.options().requires_grad(false);
  const at::Tensor losses = at::empty({rows}, options.dtype(at::kFloat)), labels = task.labels.contiguous();
  CrossEntropy result;
  if (task.predictions) result.predictions = at::empty({rows}, options.dtype(at::kLong));
  if (rows > 0) {
    kernel_of(logits, writes_gradients)
        ->launch({.blocks = rows, .threads = kThreads}, logits.mutable_data_ptr(), labels.const_data_ptr(),
                 losses.mutable_data_ptr(),
                 task.predictions ? result.predictions.mutable_data_ptr() : nullptr,
                 factor.defined() ? factor.const_data_ptr() : nullptr, static_cast<int>(task.words),
                 logits.stride(0), task.no_label, static_cast<float>(task.label_smoothing));
  }
  result.loss_sum = losses.sum();
  return result;
}

class TemporaryCrossEntropy : public torch::autograd::Function<TemporaryCrossEntropy> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& logits, const CrossEntropyTask& task) {
    context->save_for_backward({logits, task.labels});
    context->saved_data["no_label"] = task.no_label;
    context->saved_data["words"] = task.words;
    context->saved_data["label_smoothing"] = task.label_smoothing;
    const CrossEntropy result = launch(logits, task, /*writes_gradients=*/false, {});
    if (!task.predictions) return {result.loss_sum};
    context->mark_non_differentiable({result.predictions});
    return {result.loss_sum, result.predictions};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const CrossEntropyTask task{.labels = saved[1],
                                .no_label = context->saved_data["no_label"].toInt(),
                                .words = context->saved_data["words"].toInt(),
                                .label_smoothing = context->saved_data["label_smoothing"].toDouble()};
    const at::NoGradGuard no_grad;
    const bool keeps = torch::autograd::get_current_graph_task_keep_graph();
    const at::Tensor target = keeps ? saved[0].clone() : saved[0].detach();
    launch(target, task, /*writes_gradients=*/true, gradients[0].to(at::kFloat));
    return {target, at::Tensor()};
  }
};

}  // namespace

bool takes_cross_entropy(const at::Tensor& logits, const CrossEntropyTask& task) {
  const auto dtype = fused_dtype(logits);
  if (!dtype || logits.scalar_type() != *dtype || logits.dim() != 2 || !logits.is_contiguous()) return false;
  const std::int64_t bytes = logits.element_size();
  const bool is_aligned = logits.size(1) * bytes % kAligned == 0 &&
                          reinterpret_cast<std::uintptr_t>(logits.const_data_ptr()) % kAligned == 0;
  const bool fits = task.words <= logits.size(1) && logits.size(1) <= std::numeric_limits<int>::max() / 2 &&
                    logits.size(0) <= std::numeric_limits<int>::max();
  return is_aligned && fits && task.labels.scalar_type() == at::kLong &&
         task.labels.device() == logits.device() && kernel_of(logits, false) != nullptr &&
         kernel_of(logits, true) != nullptr;
}

CrossEntropy cross_entropy_in_place(const at::Tensor& logits, const CrossEntropyTask& task,
                                    bool writes_gradients) {
  const at::NoGradGuard no_grad;
  return launch(logits, task, writes_gradients, {});
}

CrossEntropy cross_entropy_of_temporary(const at::Tensor& logits, const CrossEntropyTask& task) {
  const auto results = TemporaryCrossEntropy::apply(logits, task);
  CrossEntropy result{.loss_sum = results[0]};
  if (task.predictions) result.predictions = results[1];
  return result;
}

}  // namespace lockstep::kernels
