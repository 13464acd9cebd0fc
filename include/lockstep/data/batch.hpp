#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// Named tensors in the order in which they were added: what a loader yields and what a model's step reads.
///
///     at::Tensor images = batch["image"];   // [rows, ...]
///
/// In a batch of n samples every tensor has n rows in its first dimension. Tensors are shared handles, as
/// everywhere in LibTorch: copying a Batch copies no data. Everything here is *Local*. Several threads may
/// read one Batch; a thread that changes it must be alone.
class Batch {
 public:
  /// A name and its tensor.
  using Item = std::pair<std::string, at::Tensor>;

  /// No tensors, no rows.
  Batch() = default;
  /// `Batch{{"image", images}, {"label", labels}}`. Throws UsageError for a name given twice.
  Batch(std::initializer_list<Item> items);

  /// The tensor called `name`. Throws UsageError, naming the names that there are, when there is none:
  /// reading never adds an entry. The reference lives until the batch is changed.
  const at::Tensor& operator[](std::string_view name) const;

  /// Adds a tensor at the end, or replaces the tensor of that name in its place.
  void set(std::string name, at::Tensor tensor);

  /// Adds a tensor at the end. Throws UsageError when the name is taken.
  void insert(std::string name, at::Tensor tensor);

  /// Whether there is a tensor of that name. Names are compared byte for byte.
  bool contains(std::string_view name) const noexcept;

  /// The names, in the order in which they were added.
  std::vector<std::string> names() const;

  /// Names and tensors in order, for a range-for.
  const std::vector<Item>& items() const noexcept { return items_; }

  /// True when it holds no tensor.
  bool empty() const noexcept { return items_.empty(); }

  /// The number of rows: the first dimension of the first tensor; 0 without tensors or for a scalar.
  std::int64_t size() const;

  /// The same batch with every tensor on `device` (the same handles where they are there already).
  /// `non_blocking` lets copies from pinned memory run beside the host, as in `at::Tensor::to`. `indices` and
  /// `valid` are kept.
  Batch to(at::Device device, bool non_blocking = false) const;

  /// The same batch with every CPU tensor in page-locked memory. Needs a CUDA device.
  Batch pin_memory() const;

  /// `valid` as a tensor of bool, [rows], on the CPU: all true where nobody filled it.
  at::Tensor valid_mask() const;

  /// Where each row came from: indices into the data set that the loader reads. As long as `size()` when a
  /// loader made the batch, empty when nobody filled it, or when the loader reads a stream.
  std::vector<std::int64_t> indices;

  /// Whether the row counts: false for a sample that was repeated so that the ranks have equal batches. As
  /// long as `indices`, or of a stream as the samples. A loss may use such rows, a metric must not.
  std::vector<bool> valid;

 private:
  std::vector<Item> items_;
};

/// One sample: the same named tensors without the batch dimension (a label is a scalar tensor).
using Example = Batch;

}  // namespace lockstep
