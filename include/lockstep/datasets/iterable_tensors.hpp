#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/stream_dataset.hpp"
#include "lockstep/datasets/iterable_dataset.hpp"

namespace lockstep {

/// How rows of a stream are converted to samples.
struct IterableTensorOptions {
  /// The fields to use; by default all of numbers, booleans and lists of numbers, at any depth. Texts must be
  /// named here: they become the batch's texts().
  std::vector<std::string> columns = {};
  /// Creates the sample of a row, instead of converting fields: decodes an image, tokenizes a text. Called by
  /// several workers at once.
  std::function<Example(const Value::Fields& row)> example = nullptr;
  /// The number of rows of the whole stream, if known: for StreamDataset::size().
  std::optional<std::int64_t> size = std::nullopt;
};

/// The rows of an IterableDataset as samples for a DataLoader. A number becomes a scalar tensor, and each
/// level of lists adds a dimension; whole numbers are int64, booleans bool, others float32, as
/// with_format("torch") of `datasets` creates them. An empty list is int64.
///
/// Parts are those of split_dataset_by_node and IterableDataset::open: ranks get whole files if their number
/// is a multiple of the number of ranks; otherwise each reads all files and keeps every num_replicas-th row.
/// The loader shards the stream: open() for several ranks throws UsageError for a stream that is already
/// split. With a shuffle(), every epoch has another order.
///
/// Everything is *Local*; several threads may use one object.
class IterableTensorDataset final : public StreamDataset {
 public:
  explicit IterableTensorDataset(IterableDataset data, IterableTensorOptions options = {});

  /// The reader's next() throws DataError, naming the column, for lists of different lengths within one
  /// value, and for a column of `columns` that a row does not have, that is null, or that has neither numbers
  /// nor text.
  std::unique_ptr<StreamReader> open(const StreamPart& part, std::int64_t epoch,
                                     const std::string& state) const override;
  std::optional<std::int64_t> size() const override { return options_.size; }
  std::string fingerprint() const override { return data_.fingerprint(); }

  /// The underlying rows.
  const IterableDataset& data() const noexcept { return data_; }

 private:
  IterableDataset data_;
  IterableTensorOptions options_;
};

}  // namespace lockstep
