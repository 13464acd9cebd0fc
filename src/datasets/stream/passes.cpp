#include "datasets/stream/passes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <utility>

#include "core/random.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::stream {
namespace {

Value* find(Row& row, const std::string& name) {
  const auto found =
      std::find_if(row.begin(), row.end(), [&](const auto& field) { return field.first == name; });
  return found == row.end() ? nullptr : &found->second;
}

/// An operation whose only position is that of its source.
class Operation : public RowPass {
 public:
  explicit Operation(PassPointer source) : source_(std::move(source)) {}
  Json state() const override { return source_->state(); }
  void load(const Json& state) override { source_->load(state); }

 protected:
  RowPass& source() const { return *source_; }

 private:
  PassPointer source_;
};

class MapPass final : public Operation {
 public:
  MapPass(PassPointer source, IterableDataset::MapFunction function, std::vector<std::string> remove_columns)
      : Operation(std::move(source)), function_(std::move(function)), remove_(std::move(remove_columns)) {}

  std::optional<Row> next() override {
    auto row = source().next();
    if (!row) return row;
    auto made = function_(*row);
    std::erase_if(*row, [&](const auto& field) {
      return std::find(remove_.begin(), remove_.end(), field.first) != remove_.end();
    });
    for (auto& [name, value] : made) {
      if (auto* const old = find(*row, name)) {
        *old = std::move(value);
      } else {
        row->emplace_back(name, std::move(value));
      }
    }
    return row;
  }

  std::int64_t skip(std::int64_t count) override { return source().skip(count); }

 private:
  IterableDataset::MapFunction function_;
  std::vector<std::string> remove_;
};

class FilterPass final : public Operation {
 public:
  FilterPass(PassPointer source, IterableDataset::KeepFunction keep)
      : Operation(std::move(source)), keep_(std::move(keep)) {}

  std::optional<Row> next() override {
    auto row = source().next();
    while (row && !keep_(*row)) row = source().next();
    return row;
  }

 private:
  IterableDataset::KeepFunction keep_;
};

/// An operation that counts rows.
class CountingPass : public RowPass {
 public:
  explicit CountingPass(PassPointer source) : source_(std::move(source)) {}
  Json state() const override { return {{"count", count_}, {"source", source_->state()}}; }
  void load(const Json& state) override {
    count_ = number_in(state, "count", most_counted());
    source_->load(state.at("source"));
  }

 protected:
  virtual std::int64_t most_counted() const = 0;

  PassPointer source_;
  std::int64_t count_ = 0;
};

class TakePass final : public CountingPass {
 public:
  TakePass(PassPointer source, std::int64_t most) : CountingPass(std::move(source)), most_(most) {}

  std::optional<Row> next() override {
    if (count_ >= most_) return std::nullopt;
    auto row = source_->next();
    count_ += row ? 1 : 0;
    return row;
  }

  std::int64_t skip(std::int64_t count) override {
    const auto done = source_->skip(std::min(count, most_ - count_));
    count_ += done;
    return done;
  }

 private:
  std::int64_t most_counted() const override { return most_; }

  std::int64_t most_;
};

class SkipPass final : public CountingPass {
 public:
  SkipPass(PassPointer source, std::int64_t first) : CountingPass(std::move(source)), first_(first) {}

  std::optional<Row> next() override {
    pass_over_first();
    return source_->next();
  }

  std::int64_t skip(std::int64_t count) override {
    pass_over_first();
    return source_->skip(count);
  }

 private:
  std::int64_t most_counted() const override { return first_; }

  void pass_over_first() {
    if (count_ == first_) return;
    source_->skip(first_ - count_);
    count_ = first_;
  }

  std::int64_t first_;
};

/// The count is the index of the source's next row within its group of `step` rows.
class StepPass final : public CountingPass {
 public:
  StepPass(PassPointer source, std::int64_t step, std::int64_t offset)
      : CountingPass(std::move(source)), step_(step), offset_(offset) {}

  std::optional<Row> next() override {
    source_->skip((offset_ - count_ + step_) % step_);
    count_ = (offset_ + 1) % step_;
    return source_->next();
  }

 private:
  std::int64_t most_counted() const override { return step_ - 1; }

  std::int64_t step_;
  std::int64_t offset_;
};

class BatchPass final : public Operation {
 public:
  BatchPass(PassPointer source, std::int64_t batch_size, bool drop_last)
      : Operation(std::move(source)), batch_size_(batch_size), drop_last_(drop_last) {}

  std::optional<Row> next() override {
    std::vector<std::pair<std::string, Value::List>> columns;
    std::size_t rows = 0;
    for (; rows < static_cast<std::size_t>(batch_size_); ++rows) {
      auto row = source().next();
      if (!row) break;
      for (auto& [name, value] : *row) {
        auto& column = column_of(columns, name);
        column.resize(rows);
        column.push_back(std::move(value));
      }
    }
    if (rows == 0 || (drop_last_ && rows < static_cast<std::size_t>(batch_size_))) return std::nullopt;
    Row batch;
    for (auto& [name, values] : columns) {
      values.resize(rows);
      batch.emplace_back(name, std::move(values));
    }
    return batch;
  }

  std::int64_t skip(std::int64_t count) override {
    // A number of rows too large to represent means all rows.
    const auto most = std::numeric_limits<std::int64_t>::max() / batch_size_;
    const auto rows = source().skip(std::min(count, most) * batch_size_);
    return rows / batch_size_ + (rows % batch_size_ != 0 && !drop_last_ ? 1 : 0);
  }

 private:
  static Value::List& column_of(std::vector<std::pair<std::string, Value::List>>& columns,
                                const std::string& name) {
    for (auto& [known, values] : columns) {
      if (known == name) return values;
    }
    return columns.emplace_back(name, Value::List()).second;
  }

  std::int64_t batch_size_;
  bool drop_last_;
};

/// An element of the buffer that rows are drawn from: a row, and its number in the source.
struct Slot {
  std::int64_t number = 0;
  Row row = {};
};

/// Draws rows from a buffer in random order. The state contains no rows, of which the buffer may hold
/// gigabytes. It has four values: how many rows were drawn (`drawn`) and read (`read`), and a position of the
/// source (`source`) with the number of its next row (`from`).
///
/// Which slot is drawn depends on the seed and on the buffer's length alone, never on a row's content. So
/// load() replays the draws with numbers in place of rows: it fills the buffer with 0, 1, 2, ... and draws as
/// often as before, which leaves the same numbers in the same slots and the generator in the same state. Then
/// the rows of these numbers are read, from a position that is not after the oldest of them:
///
///     numbers    0 ........ from ...... oldest ........ read
///     source     |          ^ position  ^ in the buffer ^ next to be read
///     load()     (numbers)  (skipped)   (kept if in the buffer)
///
/// An old row may stay in the buffer for long, so positions are recorded while rows are read, a quarter of a
/// buffer apart (at least 64 rows), and those before the one that the oldest row needs are dropped.
class ShufflePass final : public RowPass {
 public:
  ShufflePass(PassPointer source, std::int64_t buffer_size, std::uint64_t seed)
      : source_(std::move(source)), buffer_size_(static_cast<std::size_t>(buffer_size)), bits_(seed) {
    remember();
  }

  std::optional<Row> next() override {
    while (!ended_ && buffer_.size() < buffer_size_) read();
    if (buffer_.empty()) return std::nullopt;
    return draw().row;
  }

  Json state() const override {
    const auto& [number, state] = *known_position();
    return {{"drawn", drawn_}, {"read", read_}, {"from", number}, {"source", state}};
  }

  void load(const Json& state) override {
    const auto read = number_in(state, "read");
    const auto drawn = number_in(state, "drawn", read);
    while (drawn_ < drawn) {
      fill_with_numbers(read);
      if (buffer_.empty()) break;
      draw();
    }
    fill_with_numbers(read);
    const auto oldest = std::ranges::min_element(buffer_, {}, &Slot::number);
    const auto from = number_in(state, "from", oldest == buffer_.end() ? read : oldest->number);
    source_->load(state.at("source"));
    positions_ = {{from, state.at("source")}};
    read_rows(from, read);
  }

 private:
  using Position = std::pair<std::int64_t, Json>;

  void read() {
    if (read_ >= positions_.back().first + interval()) remember();
    auto row = source_->next();
    ended_ = !row;
    if (row) buffer_.push_back({read_++, *std::move(row)});
  }

  Slot draw() {
    ++drawn_;
    std::swap(buffer_[static_cast<std::size_t>(bits_.below(std::ssize(buffer_)))], buffer_.back());
    auto slot = std::move(buffer_.back());
    buffer_.pop_back();
    return slot;
  }

  void fill_with_numbers(std::int64_t read) {
    while (read_ < read && buffer_.size() < buffer_size_) buffer_.push_back({read_++});
  }

  /// Reads the rows from `from` to `read` - 1 again, and keeps those whose numbers are in the buffer.
  void read_rows(std::int64_t from, std::int64_t read) {
    std::map<std::int64_t, Row*> wanted;
    for (auto& slot : buffer_) wanted[slot.number] = &slot.row;
    for (auto number = from; number < read; ++number) {
      if (number >= positions_.back().first + interval()) positions_.emplace_back(number, source_->state());
      const auto found = wanted.find(number);
      if (found == wanted.end()) {
        source_->skip(1);
      } else if (auto row = source_->next()) {
        *found->second = *std::move(row);
      }
    }
  }

  std::int64_t interval() const { return std::max<std::int64_t>(std::ssize(buffer_) / 4, 64); }

  /// Records a position; drops those before the one that the oldest row needs.
  void remember() {
    if (!positions_.empty()) positions_.erase(positions_.begin(), known_position());
    positions_.emplace_back(read_, source_->state());
  }

  /// The last position that is not after the oldest row.
  std::deque<Position>::const_iterator known_position() const {
    auto oldest = read_;
    for (const auto& slot : buffer_) oldest = std::min(oldest, slot.number);
    const auto behind =
        std::upper_bound(positions_.begin(), positions_.end(), oldest,
                         [](std::int64_t number, const Position& known) { return number < known.first; });
    return std::prev(behind);
  }

  PassPointer source_;
  std::size_t buffer_size_;
  RandomBits bits_;
  std::vector<Slot> buffer_;
  /// Positions of the source, with the number of the next row at each.
  std::deque<Position> positions_;
  std::int64_t read_ = 0;
  std::int64_t drawn_ = 0;
  bool ended_ = false;
};

}  // namespace

PassPointer map_pass(PassPointer source, IterableDataset::MapFunction function,
                     std::vector<std::string> remove_columns) {
  return std::make_unique<MapPass>(std::move(source), std::move(function), std::move(remove_columns));
}

PassPointer filter_pass(PassPointer source, IterableDataset::KeepFunction keep) {
  return std::make_unique<FilterPass>(std::move(source), std::move(keep));
}

PassPointer take_pass(PassPointer source, std::int64_t count) {
  return std::make_unique<TakePass>(std::move(source), count);
}

PassPointer skip_pass(PassPointer source, std::int64_t count) {
  return std::make_unique<SkipPass>(std::move(source), count);
}

PassPointer batch_pass(PassPointer source, std::int64_t batch_size, bool drop_last) {
  return std::make_unique<BatchPass>(std::move(source), batch_size, drop_last);
}

PassPointer step_pass(PassPointer source, std::int64_t step, std::int64_t offset) {
  return std::make_unique<StepPass>(std::move(source), step, offset);
}

PassPointer shuffle_pass(PassPointer source, std::int64_t buffer_size, std::uint64_t seed) {
  return std::make_unique<ShufflePass>(std::move(source), buffer_size, seed);
}

}  // namespace lockstep::stream
