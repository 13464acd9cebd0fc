#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::kernels {

/// What a cross entropy is computed of.
struct CrossEntropyTask {
  /// Int64 [rows]; `no_label` does not count.
  at::Tensor labels;
  std::int64_t no_label = -100;
  /// The number of classes.
  std::int64_t words = 0;
  /// The share of each label that is spread over all classes.
  double label_smoothing = 0;
  /// Whether the most probable classes are wanted too.
  bool predictions = false;
};

struct CrossEntropy {
  /// The sum over the labels that count: float32, a scalar.
  at::Tensor loss_sum;
  /// Int64 [rows]; undefined if not wanted.
  at::Tensor predictions = {};
  /// How many labels count: int64, a scalar.
  at::Tensor label_count = {};
};

/// Whether logits in `dtype` on the device of `labels` can be given to the kernel at all: fused kernels are
/// on, this one can be compiled, and the labels are int64.
bool has_cross_entropy(at::ScalarType dtype, const at::Tensor& labels);

/// Whether the kernel takes `logits`: bfloat16 or float16 [rows, stride] of a GPU, contiguous, of which the
/// first `task.words` columns are logits, and rows that are multiples of 16 bytes. False also where the
/// kernel cannot be compiled.
bool takes_cross_entropy(const at::Tensor& logits, const CrossEntropyTask& task);

/// The cross entropy of `logits`, in float32. With `writes_gradients`, the gradient of `loss_sum` by them
/// replaces them. Deterministic.
CrossEntropy cross_entropy_in_place(const at::Tensor& logits, const CrossEntropyTask& task,
                                    bool writes_gradients);

/// The same with a graph: backward replaces the logits, which nothing else may use, by the gradient of
/// `loss_sum` times that of the result.
CrossEntropy cross_entropy_of_temporary(const at::Tensor& logits, const CrossEntropyTask& task);

}  // namespace lockstep::kernels
