#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/dataset.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep {

/// How columns are converted to tensors.
struct ArrowTensorOptions {
  /// The columns to use; by default all columns of numbers, booleans and lists of these. Nested lists of
  /// them, at any depth, become tensors too, and texts become the batch's texts(), but only if they are
  /// named here. Other types (structures, lists of texts) are not supported.
  std::vector<std::string> columns = {};
  /// Padding value for lists of different lengths in a batch, by column: {{"input_ids", 0}, {"labels",
  /// -100}}. Inner lists are padded to the longest of the batch, and shorter outer lists with whole rows of
  /// padding. Without an entry, lists of different lengths in one batch are an error.
  std::map<std::string, double> padding = {};
  /// Columns of lists whose batches are jagged instead of padded, see Batch: the numbers of all rows, and
  /// `<column>_offsets`. For lists of lists, `<column>_offsets` counts lists, and `<column>_offsets_1`, int64
  /// [lists + 1], numbers; and so on. Single samples are not affected.
  std::vector<std::string> jagged = {};
};

/// The rows of an ArrowDataset as samples for a loader: a number becomes a scalar tensor, a list a tensor of
/// one dimension, a list of lists one of two and so on, of the column's dtype (booleans: bool; float16 too;
/// uint16, uint32 and uint64, which few operations take, become int64, as in `datasets`). A batch has the
/// shapes [rows], [rows, longest list of the batch], [rows, longest list, longest inner list], except for
/// columns in `jagged`. Everything is *Local*; several threads may use one object.
class ArrowTensorDataset final : public Dataset {
 public:
  /// Shares the data. Throws UsageError, naming the column and its type, for a column that cannot become a
  /// tensor: one of another type, or one with nulls, as values or in lists (the error then names the row).
  explicit ArrowTensorDataset(ArrowDataset data, ArrowTensorOptions options = {});

  std::int64_t size() const override { return data_.num_rows(); }
  /// Copies of the row's values. Throws UsageError for an index out of range, or, with the column, for a
  /// uint64 above 2^63 - 1.
  Example get(std::int64_t index, const SampleContext& context) const override;
  /// One copy per column. Throws UsageError for an index out of range, or for lists of different lengths in a
  /// column without padding, naming it.
  Batch get_batch(std::span<const std::int64_t> indices,
                  std::span<const SampleContext> contexts) const override;

  /// The fingerprint of the data: see ArrowDataset::fingerprint.
  std::string fingerprint() const { return data_.fingerprint(); }

  /// The text of a column for some rows, for example the `indices` of a batch. Throws UsageError for a column
  /// of another type, an index out of range or a null.
  std::vector<std::string> texts(std::string_view column, std::span<const std::int64_t> indices) const;

  /// The underlying rows and columns.
  const ArrowDataset& data() const noexcept { return data_; }

 private:
  ArrowDataset data_;
  ArrowTensorOptions options_;
};

}  // namespace lockstep
