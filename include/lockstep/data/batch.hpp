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
/// Columns of texts may stand beside them.
///
///     at::Tensor images = batch["image"];                        // [rows, ...]
///     const std::vector<std::string>& names = batch.texts("file_name");   // one for each row
///
/// In a batch of n samples every tensor has n rows in its first dimension. Lists of different lengths that
/// are not padded are two tensors, as in PyTorch's jagged layout: `words`, the numbers of all rows one after
/// another, and `words_offsets`, int64 [n + 1]; those of row r are words[offsets[r]] to words[offsets[r + 1]
/// - 1]. jagged_collate() and ArrowTensorOptions::jagged make them. Tensors are shared handles, as
/// everywhere in LibTorch: copying a Batch copies no data. Everything here is *Local*. Several threads may
/// read one Batch; a thread that changes it must be alone.
class Batch {
 public:
  /// A name and its tensor.
  using Item = std::pair<std::string, at::Tensor>;
  /// A name and its texts, one for each row.
  using TextItem = std::pair<std::string, std::vector<std::string>>;

  /// No tensors, no rows.
  Batch() = default;
  /// `Batch{{"image", images}, {"label", labels}}`. Throws UsageError for a name given twice.
  Batch(std::initializer_list<Item> items);

  /// The tensor called `name`. Throws UsageError, naming the names that there are, when there is none:
  /// reading never adds an entry. The reference lives until the batch is changed.
  const at::Tensor& operator[](std::string_view name) const;

  /// Adds a tensor at the end, or replaces the tensor of that name in its place. Throws UsageError when texts
  /// have the name.
  void set(std::string name, at::Tensor tensor);

  /// Adds a tensor at the end. Throws UsageError when the name is taken.
  void insert(std::string name, at::Tensor tensor);

  /// Whether there is a tensor of that name. Names are compared byte for byte.
  bool contains(std::string_view name) const noexcept;

  /// The names, in the order in which they were added.
  std::vector<std::string> names() const;

  /// Names and tensors in order, for a range-for.
  const std::vector<Item>& items() const noexcept { return items_; }

  /// The texts called `name`, one for each row, as PyTorch's default_collate gives strings. Throws
  /// UsageError, naming the texts that there are, when there are none of that name. The reference lives until
  /// the batch is changed.
  const std::vector<std::string>& texts(std::string_view name) const;

  /// Adds texts at the end, or replaces those of that name. Throws UsageError when a tensor has the name.
  void set_texts(std::string name, std::vector<std::string> texts);

  /// Names and texts in order. Tensors are not among them.
  const std::vector<TextItem>& text_items() const noexcept { return texts_; }

  /// True when it holds neither tensors nor texts.
  bool empty() const noexcept { return items_.empty() && texts_.empty(); }

  /// The number of rows: the first dimension of the first tensor, or of its offsets less one; without
  /// tensors, of the first texts. 0 for a scalar.
  std::int64_t size() const;

  /// The same batch with every tensor on `device` (the same handles where they are there already).
  /// `non_blocking` lets copies from pinned memory run beside the host, as in `at::Tensor::to`. `indices`,
  /// `valid` and texts are kept.
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
  std::vector<TextItem> texts_;
};

/// One sample: the same named tensors without the batch dimension (a label is a scalar tensor), and one text
/// of each name.
using Example = Batch;

}  // namespace lockstep
