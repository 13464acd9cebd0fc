#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

// Copies of float32 weights in the dtype of autocast, which live from step to step.
namespace lockstep::kernels {

/// The copy in `dtype`, float16 or bfloat16, of a float32 parameter: without a graph, for the forward of an
/// autograd function, and not to be changed. Its values are those of `parameter.to(dtype)`.
///
/// In a forward (see ForwardOfWeights), the first call for a parameter copies it and all those that were
/// asked for with it in an earlier forward, by a few kernels for all instead of one for each; later calls
/// find the copy. Outside of one, each call makes a plain copy, except in a backward that computes a part of
/// its forward again. The memory is kept until the parameter is destroyed. A copy that something still holds,
/// such as the graph of an earlier forward, is left to it and replaced by another. In a step that is recorded
/// as a CUDA graph the copying is recorded, so that each replay begins with the weights that it finds.
///
/// A plain copy, which is not kept, of tensors of the CPU, of parameters that are not dense or no leaves, of
/// those given to copy_never(), and if a graph is recorded in whose warm-up the parameter was not asked for.
/// `rows`: the copy has a multiple of so many rows, the last of which are 0; of a parameter of two
/// dimensions, if it is not 1. Any thread.
at::Tensor low_precision_copy(const at::Tensor& parameter, at::ScalarType dtype, std::int64_t rows = 1);

/// The same of several parameters, whose copies lie one after another along the first dimension: the weights
/// of layers of one input, for one product. The other dimensions are the same.
at::Tensor low_precision_copy(const std::vector<at::Tensor>& parameters, at::ScalarType dtype);

/// A forward of this thread: nothing changes weights between their first use and its end. Of nested ones the
/// outermost counts.
class [[nodiscard]] ForwardOfWeights {
 public:
  ForwardOfWeights() { begin(); }
  ~ForwardOfWeights() { end(); }
  ForwardOfWeights(const ForwardOfWeights&) = delete;
  ForwardOfWeights& operator=(const ForwardOfWeights&) = delete;

  static void begin();
  static void end();
};

/// For parameters whose memory is exchanged without a trace in their version, such as those of fully sharded
/// models. Any thread.
void copy_never(const at::Tensor& parameter);

/// For tests: whether parameters of the CPU have copies as well, and how many there are.
void keep_copies_on_cpu(bool keeps);
std::size_t count_weight_copies();

}  // namespace lockstep::kernels
