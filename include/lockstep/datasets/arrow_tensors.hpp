#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/dataset.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep {

/// How columns become tensors.
struct ArrowTensorOptions {
  /// The columns to use; by default all of numbers, booleans and lists of numbers. Lists of lists of numbers,
  /// at any depth, have tensors too, and texts are the batch's texts(), but both have to be named here.
  /// Others (structures, lists of texts) have none.
  std::vector<std::string> columns = {};
  /// What fills up lists of different lengths in a batch, by column: {{"input_ids", 0}, {"labels", -100}}.
  /// Inner lists are filled up to the longest of the batch, and shorter outer ones by whole lists of it.
  /// Without an entry, lists of different lengths in one batch are an error.
  std::map<std::string, double> padding = {};
  /// Columns of lists whose batches are not padded but jagged, see Batch: the numbers of all rows, and
  /// `<column>_offsets`. Of lists of lists, `<column>_offsets` counts lists, and `<column>_offsets_1`, int64
  /// [lists + 1], numbers; and so on. Of a sample alone they are as any other.
  std::vector<std::string> jagged = {};
};

/// The rows of an ArrowDataset as samples for a loader: a number is a scalar tensor, a list a tensor of one
/// dimension, a list of lists one of two and so on, of the column's own dtype (booleans: bool; float16 too).
/// A batch has the shapes [rows], [rows, longest list of the batch], [rows, longest list, longest inner
/// list], but where the options say `jagged`. Everything is *Local*; several threads may use one object.
class ArrowTensorDataset final : public Dataset {
 public:
  /// Shares the data. Throws UsageError, naming the column and its type, for one that no tensor can show: one
  /// of another type, or with nulls, be they values or elements of lists (the row is named then).
  explicit ArrowTensorDataset(ArrowDataset data, ArrowTensorOptions options = {});

  std::int64_t size() const override { return data_.num_rows(); }
  /// Copies of the row's values. Throws UsageError for an index out of range.
  Example get(std::int64_t index, const SampleContext& context) const override;
  /// One copy for each column. Throws UsageError for an index out of range or for lists of different lengths
  /// in a column without padding, naming it.
  Batch get_batch(std::span<const std::int64_t> indices,
                  std::span<const SampleContext> contexts) const override;

  /// The data's own fingerprint: see ArrowDataset::fingerprint.
  std::string fingerprint() const { return data_.fingerprint(); }

  /// The text of a column for some rows: for the `indices` of a batch that was made without them. Throws
  /// UsageError for a column of another type, an index out of range or a null.
  std::vector<std::string> texts(std::string_view column, std::span<const std::int64_t> indices) const;

  /// The rows and columns behind it.
  const ArrowDataset& data() const noexcept { return data_; }

 private:
  ArrowDataset data_;
  ArrowTensorOptions options_;
};

}  // namespace lockstep
