#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// Named tensors in insertion order: what a loader returns and what a model's step reads. A batch may also
/// have columns of texts.
///
///     at::Tensor images = batch["image"];                        // [rows, ...]
///     const std::vector<std::string>& names = batch.texts("file_name");   // one for each row
///
/// In a batch of n samples every tensor has n rows in its first dimension. Lists of different lengths without
/// padding are two tensors, as in PyTorch's jagged layout: `words` contains the numbers of all rows,
/// concatenated, and `words_offsets` is int64 [n + 1]; row r is words[offsets[r]] to words[offsets[r + 1] -
/// 1]. jagged_collate() and ArrowTensorOptions::jagged create them. Tensors are shared handles, as everywhere
/// in LibTorch: copying a Batch copies no data. Everything here is *Local*. Several threads may read one
/// Batch; a thread that modifies it needs exclusive access.
class Batch {
 public:
  /// A name and its tensor.
  using Item = std::pair<std::string, at::Tensor>;
  /// A name and its texts, one per row.
  using TextItem = std::pair<std::string, std::vector<std::string>>;

  /// An empty batch: no tensors, no rows.
  Batch() = default;
  /// `Batch{{"image", images}, {"label", labels}}`. Throws UsageError if a name occurs twice.
  Batch(std::initializer_list<Item> items);

  /// The tensor called `name`. Never adds an entry: throws UsageError, listing the existing names, if there
  /// is none. The reference is valid until the batch is modified.
  const at::Tensor& operator[](std::string_view name) const;

  /// Appends a tensor, or replaces the tensor of that name in place. Throws UsageError if texts have the
  /// name.
  void set(std::string name, at::Tensor tensor);

  /// Appends a tensor. Throws UsageError if the name is taken.
  void insert(std::string name, at::Tensor tensor);

  /// Whether there is a tensor of that name. Names are compared byte for byte.
  bool contains(std::string_view name) const noexcept;

  /// The names of the tensors in insertion order.
  std::vector<std::string> names() const;

  /// Names and tensors in insertion order, for a range-for.
  const std::vector<Item>& items() const noexcept { return items_; }

  /// The texts called `name`, one per row, as PyTorch's default_collate returns strings. Throws UsageError,
  /// listing the existing names, if there are none. The reference is valid until the batch is modified.
  const std::vector<std::string>& texts(std::string_view name) const;

  /// Appends texts, or replaces those of that name. Throws UsageError if a tensor has the name.
  void set_texts(std::string name, std::vector<std::string> texts);

  /// Names and texts in insertion order, without the tensors.
  const std::vector<TextItem>& text_items() const noexcept { return texts_; }

  /// True if there are neither tensors nor texts.
  bool empty() const noexcept { return items_.empty() && texts_.empty(); }

  /// The number of rows: the first dimension of the first tensor, or the length of its offsets minus one;
  /// without tensors, the length of the first texts. 0 for a scalar.
  std::int64_t size() const;

  /// A copy with every tensor on `device`; tensors that are already there keep their handles. `non_blocking`
  /// makes copies from pinned memory asynchronous to the host, as in `at::Tensor::to`. `indices`, `valid` and
  /// texts are kept.
  Batch to(at::Device device, bool non_blocking = false) const;

  /// A copy with every CPU tensor in page-locked memory. Needs a CUDA device.
  Batch pin_memory() const;

  /// `valid` as a bool tensor, [rows], on the CPU; all true if `valid` is empty.
  at::Tensor valid_mask() const;

  /// The source of each row: indices into the data set that the loader reads. Has `size()` elements if a
  /// loader created the batch; empty if nobody set it or the loader reads a stream.
  std::vector<std::int64_t> indices;

  /// Whether each row counts: false for a sample that was repeated to give the ranks equal batches. As long
  /// as `indices`; for a stream, one element per sample. A loss may use such rows, a metric must not.
  std::vector<bool> valid;

 private:
  std::vector<Item> items_;
  std::vector<TextItem> texts_;
};

/// One sample: the same named tensors without the batch dimension (a label is a scalar tensor), and one text
/// per name.
using Example = Batch;

}  // namespace lockstep
