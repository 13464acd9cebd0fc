#include "data/stream_dispatch.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/core.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "data/batches_ahead.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using nlohmann::json;

/// Concatenates the rows of several batches, name by name.
Batch join_batches(const std::vector<Batch>& batches) {
  if (batches.size() == 1) return batches.front();
  Batch all;
  for (const auto& [name, tensor] : batches.front().items()) {
    std::vector<at::Tensor> tensors;
    for (const auto& batch : batches) tensors.push_back(batch[name]);
    all.set(name, at::cat(tensors));
  }
  for (const auto& item : batches.front().text_items()) {
    std::vector<std::string> texts;
    for (const auto& batch : batches) {
      const auto& more = batch.texts(item.first);
      texts.insert(texts.end(), more.begin(), more.end());
    }
    all.set_texts(item.first, std::move(texts));
  }
  for (const auto& batch : batches) all.valid.insert(all.valid.end(), batch.valid.begin(), batch.valid.end());
  return all;
}

/// Every tensor must have one row per sample, because it is sliced for the ranks. A collate function may have
/// created more or fewer rows.
void check_rows(Batch& batch) {
  const auto check = [&](const std::string& name, std::int64_t rows) {
    if (rows == batch.size()) return;
    throw UsageError(fmt::format(
        "dispatch_batches: '{}' must have one row per sample ({}), because it is sliced for the ranks.", name,
        batch.size()));
  };
  for (const auto& [name, tensor] : batch.items()) check(name, tensor.dim() > 0 ? tensor.size(0) : -1);
  for (const auto& [name, texts] : batch.text_items()) check(name, std::ssize(texts));
  if (std::ssize(batch.valid) != batch.size())
    batch.valid.assign(static_cast<std::size_t>(batch.size()), true);
}

/// The first `count` rows, repeated if there are fewer.
Batch first_rows(const Batch& batch, std::int64_t count) {
  Batch rows;
  const auto numbers = at::arange(count, at::kLong).remainder(batch.size());
  for (const auto& [name, tensor] : batch.items()) rows.set(name, tensor.index_select(0, numbers));
  for (const auto& [name, texts] : batch.text_items()) {
    std::vector<std::string> repeated;
    for (std::size_t row = 0; std::ssize(repeated) < count; row = (row + 1) % texts.size())
      repeated.push_back(texts[row]);
    rows.set_texts(name, std::move(repeated));
  }
  rows.valid.assign(static_cast<std::size_t>(count), false);
  return rows;
}

class Dispatched final : public StreamPass {
 public:
  Dispatched(std::unique_ptr<StreamPass> batches, std::function<Batch()> first,
             const StreamPassOptions& options)
      : batches_(std::move(batches)),
        first_(std::move(first)),
        group_(*options.group),
        plan_(options.plan),
        device_(options.options.device),
        ahead_(options.look_ahead) {}

  std::optional<Batch> next() override {
    const at::NoGradGuard no_gradients;
    Ahead whole;
    json header;
    if (batches_) {
      whole = ahead_.next([this] { return read_ahead(); });
      header = describe_ahead(whole);
    }
    header = group_.broadcast_object(header);
    if (whole.failure) std::rethrow_exception(whole.failure);
    if (header.contains("error"))
      throw DataError("rank 0, which reads the stream for all, failed: " +
                      header["error"].get<std::string>());
    left_.reset();
    if (!header.at("left").is_null()) left_ = header["left"].get<std::int64_t>();
    if (header.at("rows") == 0) return std::nullopt;
    given_ = std::move(whole.parts);
    return received(whole.batch.value_or(Batch()), header);
  }

  std::optional<std::int64_t> left() const override { return left_; }
  PartPositions parts() const override { return given_; }

 private:
  using Ahead = BatchAhead<Batch>;

  Ahead read_ahead() {
    Ahead ahead;
    try {
      auto batch = read();
      if (batch.size() > 0) ahead.batch = std::move(batch);
      ahead.parts = batches_->parts();
    } catch (...) {
      ahead.failure = std::current_exception();
    }
    return ahead;
  }

  static std::string describe_failure(const std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  /// The next batch of all ranks; no rows at the end. As in Accelerate: as many batches as ranks, or one with
  /// split_batches, and an incomplete rest at the end unless drop_last.
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
    auto all = join_batches(batches);
    const auto over = all.size() % group_.size();
    if (over == 0) return all;
    return join_batches({all, first_rows(first_(), group_.size() - over)});
  }

  json describe_ahead(const Ahead& ahead) const {
    if (ahead.failure) return {{"error", describe_failure(ahead.failure)}};
    const auto left = ahead_.left();
    json header{{"rows", 0}, {"left", left ? json(*left) : json()}};
    if (!ahead.batch) return header;
    json tensors = json::array();
    for (const auto& [name, tensor] : ahead.batch->items())
      tensors.push_back({name, static_cast<int>(tensor.scalar_type()), tensor.sizes().vec()});
    header.update({{"rows", ahead.batch->size()}, {"tensors", tensors}, {"valid", ahead.batch->valid}});
    // Only their lengths: the bytes are sent separately, because JSON strings cannot contain arbitrary bytes.
    header["texts"] = json::array();
    for (const auto& [name, texts] : ahead.batch->text_items()) {
      std::vector<std::size_t> lengths;
      for (const auto& text : texts) lengths.push_back(text.size());
      header["texts"].push_back({name, lengths});
    }
    return header;
  }

  Batch received(const Batch& whole, const json& header) const {
    const auto rows = header.at("rows").get<std::int64_t>() / group_.size();
    Batch mine;
    for (const auto& entry : header.at("tensors")) {
      const auto name = entry[0].get<std::string>();
      mine.set(name, slice(whole, name, static_cast<at::ScalarType>(entry[1].get<int>()),
                           entry[2].get<std::vector<std::int64_t>>()));
    }
    for (const auto& entry : header.at("texts")) {
      const auto name = entry[0].get<std::string>();
      mine.set_texts(name, texts_of_rank(whole, name, entry[1].get<std::vector<std::size_t>>(), rows));
    }
    const auto valid = header.at("valid").get<std::vector<bool>>();
    const auto begin = valid.begin() + group_.rank() * rows;
    mine.valid.assign(begin, begin + rows);
    return mine;
  }

  /// This rank's rows, sent as bytes: not every backend supports every dtype.
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

  std::vector<std::string> texts_of_rank(const Batch& whole, const std::string& name,
                                         const std::vector<std::size_t>& lengths, std::int64_t rows) const {
    std::string bytes;
    if (batches_)
      for (const auto& text : whole.texts(name)) bytes += text;
    bytes = group_.broadcast_object(bytes);
    const auto first = lengths.begin() + group_.rank() * rows;
    auto begin = std::reduce(lengths.begin(), first);
    std::vector<std::string> texts;
    for (auto length = first; length != first + rows; begin += *length++)
      texts.push_back(bytes.substr(begin, *length));
    return texts;
  }

  std::unique_ptr<StreamPass> batches_;
  std::function<Batch()> first_;
  ProcessGroup group_;
  BatchPlanOptions plan_;
  at::Device device_;
  /// Used on rank 0 only.
  BatchesAhead<Batch> ahead_;
  PartPositions given_;
  std::optional<std::int64_t> left_;
};

}  // namespace

std::unique_ptr<StreamPass> dispatched_stream(std::unique_ptr<StreamPass> batches,
                                              std::function<Batch()> first,
                                              const StreamPassOptions& options) {
  return std::make_unique<Dispatched>(std::move(batches), std::move(first), options);
}

}  // namespace lockstep
