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

/// How rows of a stream become samples.
struct IterableTensorOptions {
  /// The fields to use; by default all of numbers, booleans and lists of numbers, at any depth. Texts have to
  /// be named here: they are the batch's texts().
  std::vector<std::string> columns = {};
  /// Makes the sample of a row, in place of the rule for fields: decodes an image, tokenizes a text. Called
  /// by several workers at once.
  std::function<Example(const Value::Fields& row)> example = nullptr;
  /// The rows of the whole stream, where the program knows them: for StreamDataset::size().
  std::optional<std::int64_t> size = std::nullopt;
};

/// The rows of an IterableDataset as samples for a DataLoader. A number is a scalar tensor, a list one of a
/// dimension more; whole numbers are int64, others float32, as with_format("torch") of `datasets` makes them.
/// An empty list is int64.
///
/// Parts are those of split_dataset_by_node and IterableDataset::open: ranks get files where their number is
/// a multiple of the ranks', else each reads all files and makes every num_replicas-th row. The loader
/// divides it: open() for several ranks throws UsageError for a stream that is divided already. Every epoch
/// has another order where the stream has a shuffle().
///
/// Everything is *Local*; several threads may use one object.
class IterableTensorDataset final : public StreamDataset {
 public:
  explicit IterableTensorDataset(IterableDataset data, IterableTensorOptions options = {});

  /// Its next() throws DataError, naming the column, for lists of different lengths inside of one value, and
  /// for a column of `columns` that a row has not, that is null or that has neither numbers nor text.
  std::unique_ptr<StreamReader> open(const StreamPart& part, std::int64_t epoch,
                                     const std::string& state) const override;
  std::optional<std::int64_t> size() const override { return options_.size; }
  std::string fingerprint() const override { return data_.fingerprint(); }

  /// The rows behind it.
  const IterableDataset& data() const noexcept { return data_; }

 private:
  IterableDataset data_;
  IterableTensorOptions options_;
};

}  // namespace lockstep
