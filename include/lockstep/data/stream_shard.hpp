#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/data/sharding.hpp"

namespace lockstep {

/// One rank's samples of a stream of unknown length: every rank reads the whole stream, in the same order,
/// and keeps its part. Sample for sample Hugging Face Accelerate's IterableDatasetShard.
///
/// The stream is split into chunks of one global batch; each rank takes a contiguous slice of each chunk. The
/// last chunk is completed with samples of the first one, or dropped with drop_last: all ranks get the same
/// number of samples, a multiple of the rank's batch size. A single rank gets the stream unchanged. Keeps one
/// global batch in memory, and the first one until the end of the stream.
///
///     StreamShard<Example> mine(read_next, {.num_replicas = 4, .rank = rank, .batch_size = 32});
///     while (auto row = mine.next()) use(row->sample);
///
/// *Local*. One thread at a time.
template <class Sample>
class StreamShard {
 public:
  /// Returns the stream's next sample, and nothing after the last.
  using Source = std::function<std::optional<Sample>()>;

  /// A sample of this rank.
  struct Row {
    Sample sample;
    /// The sample's number in the stream, from 0.
    std::int64_t index = 0;
    /// False if the sample was repeated to complete the last chunk.
    bool valid = true;
  };

  /// `how.sharding` and `how.even_batches` are not used: a stream is sharded by batches, and evenly. Throws
  /// UsageError as check_plan_options() does.
  StreamShard(Source source, const BatchPlanOptions& options)
      : source_(std::move(source)), options_(options) {
    check_plan_options(options_);
  }

  /// This rank's next sample; nothing at the end. Exceptions of the source pass through.
  std::optional<Row> next() {
    if (options_.num_replicas == 1 && !options_.drop_last) return next_of_all();
    const auto size = rank_batch_size(options_);
    if (taken_ == size) read_piece();
    if (piece_.empty()) return std::nullopt;
    return row(options_.rank * size + taken_++);
  }

 private:
  std::optional<Row> next_of_all() {
    auto sample = source_();
    if (!sample) return std::nullopt;
    return Row{std::move(*sample), read_++, true};
  }

  /// Reads the next global batch; leaves `piece_` empty at the end of the stream.
  void read_piece() {
    const auto wanted = static_cast<std::size_t>(global_batch_size(options_));
    if (!piece_.empty() && first_.empty()) first_ = piece_;
    piece_.clear();
    taken_ = 0;
    begin_ = read_;
    while (piece_.size() < wanted) {
      auto sample = ended_ ? std::nullopt : source_();
      ended_ = !sample;
      if (ended_) break;
      piece_.push_back(std::move(*sample));
      ++read_;
    }
    if (options_.drop_last && piece_.size() < wanted) piece_.clear();
  }

  Row row(std::int64_t position) const {
    const auto held = static_cast<std::int64_t>(piece_.size());
    if (position < held) return {piece_[static_cast<std::size_t>(position)], begin_ + position, true};
    const auto& head = first_.empty() ? piece_ : first_;
    const auto filler = (position - held) % static_cast<std::int64_t>(head.size());
    return {head[static_cast<std::size_t>(filler)], filler, false};
  }

  Source source_;
  BatchPlanOptions options_;
  std::vector<Sample> first_;
  std::vector<Sample> piece_;
  std::int64_t begin_ = 0;
  std::int64_t read_ = 0;
  std::int64_t taken_ = rank_batch_size(options_);
  bool ended_ = false;
};

}  // namespace lockstep
