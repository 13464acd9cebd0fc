#include "stream_dispatch.hpp"

#include <ATen/ATen.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using nlohmann::json;

/// One batch of the rows of several, name by name.
Batch joined(const std::vector<Batch>& batches) {
  if (batches.size() == 1) return batches.front();
  Batch all;
  for (const auto& [name, tensor] : batches.front().items()) {
    std::vector<at::Tensor> tensors;
    for (const auto& batch : batches) tensors.push_back(batch[name]);
    all.set(name, at::cat(tensors));
  }
  for (const auto& batch : batches) all.valid.insert(all.valid.end(), batch.valid.begin(), batch.valid.end());
  return all;
}

/// Slices are cut out of every tensor's rows. A collate function may have made more or fewer than samples.
void check_rows(Batch& batch) {
  for (const auto& [name, tensor] : batch.items()) {
    if (tensor.dim() > 0 && tensor.size(0) == batch.size()) continue;
    throw UsageError("dispatch_batches: '" + name + "' has not one row for each of the batch's " +
                     std::to_string(batch.size()) + ", so it cannot be cut into slices for the ranks.");
  }
  if (std::ssize(batch.valid) != batch.size())
    batch.valid.assign(static_cast<std::size_t>(batch.size()), true);
}

/// The first rows, `count` of them, from the start again where there are fewer.
Batch first_rows(const Batch& batch, std::int64_t count) {
  Batch rows;
  const auto numbers = at::arange(count, at::kLong).remainder(batch.size());
  for (const auto& [name, tensor] : batch.items()) rows.set(name, tensor.index_select(0, numbers));
  rows.valid.assign(static_cast<std::size_t>(count), false);
  return rows;
}

class Dispatched final : public StreamPass {
 public:
  Dispatched(std::unique_ptr<StreamPass> batches, std::function<Batch()> first, const ProcessGroup& group,
             const BatchPlanOptions& plan, at::Device device)
      : batches_(std::move(batches)), first_(std::move(first)), group_(group), plan_(plan), device_(device) {}

  std::optional<Batch> next() override {
    const at::NoGradGuard no_gradients;
    if (batches_ && !std::exchange(begun_, true)) read_ahead();
    const auto failure = ahead_.failure;
    json header;
    if (failure) {
      header = {{"error", ahead_.error}};
    } else if (batches_) {
      whole_ = std::exchange(ahead_, {});
      if (whole_.batch.size() > 0) read_ahead();
      header = described(whole_.batch);
    }
    header = group_.broadcast_object(header);
    if (failure) std::rethrow_exception(failure);
    if (header.contains("error"))
      throw DataError("rank 0, which reads the stream for all, failed: " +
                      header["error"].get<std::string>());
    is_last_ = header.at("last").get<bool>();
    if (header.at("rows") == 0) return std::nullopt;
    return received(whole_.batch, header);
  }

  bool is_last() const override { return is_last_; }
  PartPositions parts() const override { return whole_.parts; }

 private:
  /// One batch of all ranks is read ahead, so that the last one is known as such.
  struct Ahead {
    Batch batch = {};
    /// Behind it.
    PartPositions parts = {};
    std::exception_ptr failure = {};
    std::string error = {};
  };

  void read_ahead() {
    try {
      ahead_.batch = read();
      ahead_.parts = batches_->parts();
    } catch (const c10::Error& error) {
      ahead_.failure = std::current_exception();
      ahead_.error = error.what_without_backtrace();
    } catch (const std::exception& error) {
      ahead_.failure = std::current_exception();
      ahead_.error = error.what();
    }
  }

  /// The next batch of all ranks; no rows at the end. Accelerate's rule: as many batches as there are ranks,
  /// or one with split_batches, and what is left over at the end unless drop_last.
  Batch read() {
    const auto wanted = plan_.how.split_batches ? 1 : group_.size();
    std::vector<Batch> batches;
    while (std::ssize(batches) < wanted) {
      auto batch = batches_->next();
      if (!batch) break;
      check_rows(*batch);
      batches.push_back(std::move(*batch));
    }
    if (batches.empty() || (plan_.drop_last && std::ssize(batches) < wanted)) return {};
    auto all = joined(batches);
    const auto over = all.size() % group_.size();
    if (over == 0) return all;
    return joined({all, first_rows(first_(), group_.size() - over)});
  }

  json described(const Batch& batch) const {
    json tensors = json::array();
    for (const auto& [name, tensor] : batch.items())
      tensors.push_back({name, static_cast<int>(tensor.scalar_type()), tensor.sizes().vec()});
    const bool is_end = batch.size() == 0;
    return {{"rows", batch.size()},
            {"last", is_end || (ahead_.batch.size() == 0 && !ahead_.failure)},
            {"tensors", tensors},
            {"valid", batch.valid}};
  }

  Batch received(const Batch& whole, const json& header) const {
    const auto rows = header.at("rows").get<std::int64_t>() / group_.size();
    Batch mine;
    for (const auto& entry : header.at("tensors")) {
      const auto name = entry[0].get<std::string>();
      mine.set(name, slice(whole, name, static_cast<at::ScalarType>(entry[1].get<int>()),
                           entry[2].get<std::vector<std::int64_t>>()));
    }
    const auto valid = header.at("valid").get<std::vector<bool>>();
    const auto begin = valid.begin() + group_.rank() * rows;
    mine.valid.assign(begin, begin + rows);
    return mine;
  }

  /// This rank's rows. As bytes: not every backend carries every dtype.
  at::Tensor slice(const Batch& whole, const std::string& name, at::ScalarType dtype,
                   std::vector<std::int64_t> sizes) const {
    sizes.front() /= group_.size();
    at::Tensor rows = at::empty(sizes, at::TensorOptions(group_.object_device()).dtype(dtype));
    if (rows.numel() == 0) return rows.to(device_);
    const auto bytes = [](const at::Tensor& tensor) { return tensor.view({-1}).view(at::kByte); };
    std::vector<at::Tensor> slices;
    if (batches_) {
      const auto all = whole[name].contiguous().to(group_.object_device());
      for (const auto& part : all.chunk(group_.size())) slices.push_back(bytes(part));
    }
    group_.scatter(bytes(rows), slices);
    return rows.to(device_);
  }

  std::unique_ptr<StreamPass> batches_;
  std::function<Batch()> first_;
  ProcessGroup group_;
  BatchPlanOptions plan_;
  at::Device device_;
  bool begun_ = false;
  /// What was sent last, and what comes next; rank 0's.
  Ahead whole_;
  Ahead ahead_;
  bool is_last_ = false;
};

}  // namespace

std::unique_ptr<StreamPass> dispatched_stream(std::unique_ptr<StreamPass> batches,
                                              std::function<Batch()> first, const ProcessGroup& group,
                                              const BatchPlanOptions& plan, at::Device device) {
  return std::make_unique<Dispatched>(std::move(batches), std::move(first), group, plan, device);
}

}  // namespace lockstep
