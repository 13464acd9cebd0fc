#include "datasets/stream/shards_pass.hpp"

#include <fmt/core.h>

#include <exception>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::stream {
namespace {

class ShardsPass final : public RowPass {
 public:
  ShardsPass(std::vector<std::int64_t> shards, OpenShard open, TakeBad take_bad, NameShard name)
      : shards_(std::move(shards)),
        open_(std::move(open)),
        take_bad_(std::move(take_bad)),
        name_(std::move(name)) {}

  std::optional<Row> next() override {
    std::optional<Row> row;
    each_shard([&](ShardRows& rows) {
      row = rows.next();
      row_ += row ? 1 : 0;
      return row.has_value();
    });
    return row;
  }

  std::int64_t skip(std::int64_t count) override {
    std::int64_t done = 0;
    if (count == 0) return 0;
    each_shard([&](ShardRows& rows) {
      // If a shard may turn out to be damaged, rows are skipped one at a time: those before the damage count.
      const auto wanted = take_bad_ ? 1 : count - done;
      std::int64_t some = wanted;
      while (done < count && some == wanted) {
        some = rows.skip(wanted);
        row_ += some;
        done += some;
      }
      return done == count;
    });
    return done;
  }

  Json state() const override { return {{"shard", index_}, {"row", row_}}; }

  void load(const Json& state) override {
    index_ = static_cast<std::size_t>(number_in(state, "shard", std::ssize(shards_)));
    row_ = number_in(state, "row");
  }

 private:
  /// Calls `work` with one shard after another until it returns true.
  template <typename Work>
  void each_shard(const Work& work) {
    while (index_ < shards_.size()) {
      try {
        if (!rows_) {
          rows_ = open_(shards_[index_]);
          pass_over_read();
        }
        if (work(*rows_)) return;
      } catch (const DataError& error) {
        if (!take_bad_) throw;
        take_bad_(shards_[index_], error.what());
      }
      rows_.reset();
      row_ = 0;
      ++index_;
    }
  }

  void pass_over_read() {
    const auto found = rows_->skip(row_);
    if (found == row_) return;
    throw DataError(fmt::format(
        "{} has {} rows, but {} of it were read when the position was saved: it has become shorter since.",
        name_(shards_[index_]), found, row_));
  }

  std::vector<std::int64_t> shards_;
  OpenShard open_;
  TakeBad take_bad_;
  NameShard name_;
  std::unique_ptr<ShardRows> rows_;
  std::size_t index_ = 0;
  std::int64_t row_ = 0;
};

}  // namespace

PassPointer shards_pass(std::vector<std::int64_t> shards, OpenShard open, TakeBad take_bad, NameShard name) {
  return std::make_unique<ShardsPass>(std::move(shards), std::move(open), std::move(take_bad),
                                      std::move(name));
}

}  // namespace lockstep::stream
