#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/batch_plan.hpp"
#include "data/batch_reader.hpp"
#include "data/prefetcher.hpp"
#include "data/stream_pass.hpp"
#include "lockstep/data/data_loader.hpp"

namespace lockstep {

/// State shared by a loader and its pass.
struct DataLoader::Core {
  /// Exactly one of these two is set.
  std::shared_ptr<const Dataset> dataset;
  std::shared_ptr<const StreamDataset> stream;
  DataLoaderOptions options;
  BatchPlanOptions plan;
  /// Null for a stream.
  std::shared_ptr<const Sampler> sampler;
  std::int64_t epoch = 0;
  /// Samples of all ranks; for a stream, batches of this rank.
  std::int64_t consumed = 0;
  /// For a stream.
  PartPositions parts = {};
  std::optional<ProcessGroup> group = std::nullopt;
  std::int64_t look_ahead = 1;
  std::weak_ptr<Pass> pass = {};
  std::uint64_t pass_number = 0;
  std::unique_ptr<Prefetcher> workers = nullptr;

  std::optional<std::int64_t> known_batches() const {
    if (!stream) return count_batches(sampler->size(), plan);
    const auto rows = stream->size();
    return rows ? std::optional(count_batches(*rows, plan)) : std::nullopt;
  }
  std::int64_t batches() const;
  std::int64_t batches_left() const { return count_batches(sampler->size() - consumed, plan); }
  std::int64_t position() const { return stream ? consumed : batches() - batches_left(); }
  std::uint64_t seed() const { return options.sampler ? sampler->seed() : options.seed; }
  std::string fingerprint() const { return stream ? stream->fingerprint() : dataset->fingerprint(); }
  std::string order() const { return stream ? "stream" : sampler->kind(); }
  /// Whether rank 0 reads for all.
  bool is_dispatched() const { return stream && plan.num_replicas > 1 && plan.how.dispatch_batches; }
  std::vector<std::string> parts_as_text() const {
    if (!stream) return {};
    if (!is_dispatched()) return {parts_to_text(parts, plan.num_replicas, plan.rank)};
    return {plan.rank == 0 ? parts_to_text(parts, 1, 0) : std::string()};
  }
  BatchPlan plan_rest() const { return BatchPlan(sampler->epoch_indices(epoch), consumed, plan); }
  void go_to(std::int64_t new_epoch, std::int64_t new_consumed, PartPositions new_parts = {}) noexcept {
    epoch = new_epoch;
    consumed = new_consumed;
    parts = std::move(new_parts);
  }
  Prefetcher* prefetcher() {
    if (options.num_workers == 0) return nullptr;
    if (!workers) {
      workers = std::make_unique<Prefetcher>(options.num_workers,
                                             std::int64_t{options.num_workers} * options.prefetch_factor,
                                             options.worker_init);
    }
    return workers.get();
  }
};

/// One pass over the rest of an epoch.
class DataLoader::Pass {
 public:
  explicit Pass(std::shared_ptr<Core> core);
  ~Pass() { stop(); }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  /// The next batch, which then counts as consumed. At the end of the epoch, returns nothing and moves to the
  /// next epoch.
  std::optional<Batch> next();
  void stop() noexcept;
  bool is_stopped() const noexcept { return stopped_; }
  /// The total number of batches of the epoch; the largest int64 while it is unknown.
  std::int64_t size() const;

 private:
  std::optional<Batch> take();
  std::optional<Batch> take_of_stream();
  std::optional<PrefetchedBatch> read();

  std::shared_ptr<Core> core_;
  /// Exactly one of these two is set.
  std::optional<BatchReader> reader_;
  std::unique_ptr<StreamPass> stream_;
  std::int64_t given_ = 0;
  bool stopped_ = false;
};

}  // namespace lockstep
