#include "kernels/cross_entropy.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <limits>
#include <string>

#include "kernels/aligned.hpp"
#include "kernels/block_counters.hpp"
#include "kernels/cuda_arguments.hpp"
#include "kernels/cuda_kernel.hpp"
#include "kernels/fused_kernels.hpp"
#include "kernels/kernel_arguments.hpp"
#include "kernels/no_second_derivatives.hpp"
#include "kernels/remembered.hpp"
#include "kernels/self_check.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 512;

const CudaKernel* kernel_of(at::ScalarType dtype, const at::Device& device, bool writes_gradients) {
  thread_local Remembered<const CudaKernel*, int, at::ScalarType, bool> known;
  return known.get({device.index(), dtype, writes_gradients}, [&] {
    const std::string instance =
        "cross_entropy<" + cuda_type(dtype) + (writes_gradients ? ", true>" : ", false>");
    return find_kernel("cross_entropy", instance, device);
  });
}

/// `factor`: a float32 scalar by which gradients are multiplied; may be undefined.
CrossEntropy launch(const at::Tensor& logits, const CrossEntropyTask& task, bool writes_gradients,
                    const at::Tensor& factor) {
  const std::int64_t rows = logits.size(0);
  const auto options = logits.options().requires_grad(false);
  const at::Tensor losses = at::empty({rows}, options.dtype(at::kFloat)), labels = task.labels.contiguous();
  CrossEntropy result;
  if (task.predictions) result.predictions = at::empty({rows}, options.dtype(at::kLong));
  unsigned* const counter = rows > 0 ? find_block_counters(logits.device(), 1) : nullptr;
  if (counter != nullptr) {
    result.loss_sum = at::empty({}, losses.options());
    result.label_count = at::empty({}, options.dtype(at::kLong));
  }
  const LossTotals totals{.sum = static_cast<float*>(data_to(result.loss_sum)),
                          .labels = static_cast<long long*>(data_to(result.label_count)),
                          .counter = counter};
  if (rows > 0) {
    kernel_of(logits.scalar_type(), logits.device(), writes_gradients)
        ->launch({.blocks = rows, .threads = kThreads}, logits.mutable_data_ptr(), labels.const_data_ptr(),
                 losses.mutable_data_ptr(), data_to(result.predictions), data_of(factor),
                 static_cast<int>(task.words), logits.stride(0), task.no_label,
                 static_cast<float>(task.label_smoothing), totals);
  }
  if (counter == nullptr) {
    result.loss_sum = losses.sum();
    result.label_count = labels.ne(task.no_label).sum();
  }
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
    if (!task.predictions) {
      context->mark_non_differentiable({result.label_count});
      return {result.loss_sum, result.label_count};
    }
    context->mark_non_differentiable({result.label_count, result.predictions});
    return {result.loss_sum, result.label_count, result.predictions};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    refuse_second_derivatives("cross entropy");
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

/// Both kernels, of rows that are longer than a block reads at once.
void check_cross_entropy(at::ScalarType dtype, const at::Device& device) {
  constexpr std::int64_t kRows = 5, kWords = 5003, kStride = 5056;
  CrossEntropyTask task{.labels = at::arange(kRows, at::TensorOptions(at::kLong).device(device)) * 1000,
                        .words = kWords,
                        .label_smoothing = 0.1,
                        .predictions = true};
  task.labels.narrow(0, 2, 1).fill_(task.no_label);
  at::Tensor predictions, label_count;
  const at::Tensor logits = waves({kRows, kStride}, dtype, device, 1);
  compare({.inputs = {logits},
           .fused =
               [&](const Tensors& given) {
                 const auto result = cross_entropy_of_temporary(given[0] * 1, task);
                 predictions = result.predictions;
                 label_count = result.label_count;
                 return Tensors{result.loss_sum};
               },
           .reference =
               [&](const Tensors& given) {
                 return Tensors{at::cross_entropy_loss(given[0].narrow(1, 0, kWords), task.labels, {},
                                                       at::Reduction::Sum, task.no_label, 0.1)};
               }});
  const at::Tensor words = logits.detach().narrow(1, 0, kWords).to(at::kDouble);
  const at::Tensor predicted = words.gather(1, predictions.clamp(0, kWords - 1).unsqueeze(1)).squeeze(1);
  if (!at::equal(predicted, words.amax(1))) throw Error("the most probable words differ");
  if (label_count.item<std::int64_t>() != kRows - 1) throw Error("the numbers of labels differ");
}

}  // namespace

bool has_cross_entropy(at::ScalarType dtype, const at::Tensor& labels) {
  const at::Device device = labels.device();
  const bool is_usable = (labels.is_cuda() || kernel_device_of_tests() != nullptr) && use_fused();
  if (!is_usable || labels.scalar_type() != at::kLong || !c10::isReducedFloatingType(dtype)) return false;
  thread_local Remembered<bool, int, at::ScalarType> known;
  return known.get({device.index(), dtype}, [&] {
    return kernel_of(dtype, device, false) != nullptr && kernel_of(dtype, device, true) != nullptr &&
           is_proven("cross entropy in " + cuda_type(dtype), device,
                     [&] { check_cross_entropy(dtype, device); });
  });
}

bool takes_cross_entropy(const at::Tensor& logits, const CrossEntropyTask& task) {
  const auto dtype = fused_dtype(logits);
  if (!dtype || logits.scalar_type() != *dtype || logits.dim() != 2 || !logits.is_contiguous()) return false;
  const std::int64_t bytes = logits.element_size();
  const bool rows_are_aligned = logits.size(1) * bytes % kAligned == 0 && is_aligned(logits);
  const bool fits = task.words <= logits.size(1) && logits.size(1) <= std::numeric_limits<int>::max() / 2 &&
                    logits.size(0) <= std::numeric_limits<int>::max();
  return rows_are_aligned && fits && task.labels.device() == logits.device() &&
         has_cross_entropy(*dtype, task.labels);
}

CrossEntropy cross_entropy_in_place(const at::Tensor& logits, const CrossEntropyTask& task,
                                    bool writes_gradients) {
  const at::NoGradGuard no_grad;
  return launch(logits, task, writes_gradients, {});
}

CrossEntropy cross_entropy_of_temporary(const at::Tensor& logits, const CrossEntropyTask& task) {
  const auto results = TemporaryCrossEntropy::apply(logits, task);
  CrossEntropy result{.loss_sum = results[0], .label_count = results[1]};
  if (task.predictions) result.predictions = results[2];
  return result;
}

}  // namespace lockstep::kernels
