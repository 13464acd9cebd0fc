// How metrics read tensors and sum their state over ranks.

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/metrics.hpp"

namespace lockstep::metrics {
namespace {

std::string shape_of(const at::Tensor& tensor) { return c10::str(tensor.sizes()); }

void check_shapes(const char* metric, const at::Tensor& predictions, const at::Tensor& labels) {
  const bool scores = predictions.is_floating_point();
  const bool fits =
      scores ? predictions.dim() > 0 && predictions.sizes().slice(0, predictions.dim() - 1) == labels.sizes()
             : predictions.sizes() == labels.sizes();
  if (fits) return;
  throw UsageError(std::string(metric) + ": predictions " + shape_of(predictions) + " do not fit labels " +
                   shape_of(labels) + ": expected class numbers of the labels' shape, or scores with one " +
                   "dimension more for the classes.");
}

/// Labels are class numbers, but may be stored as numbers of any kind, such as the 0.0 and 1.0 of binary
/// losses. In int64, which kIgnoredLabel fits.
at::Tensor whole_labels(const char* metric, const at::Tensor& labels) {
  if (labels.is_complex()) throw UsageError(std::string(metric) + ": labels are complex: expected class numbers.");
  const at::Tensor here = labels.detach();
  if (!here.is_floating_point()) return here.to(at::kLong);
  const at::Tensor odd = here.isfinite().logical_and(here == here.trunc()).logical_not().flatten();
  if (odd.any().item<bool>()) {
    const auto place = odd.nonzero()[0].item<std::int64_t>();
    throw DataError(fmt::format("{}: label {} of sample {} is not a class: expected whole numbers.", metric,
                                here.flatten()[place].item<double>(), place));
  }
  return here.to(at::kLong);
}

/// The largest of a single score says nothing.
void check_has_classes(const char* metric, const at::Tensor& predictions) {
  if (!predictions.is_floating_point() || predictions.size(-1) > 1) return;
  throw UsageError(std::string(metric) + ": predictions " + shape_of(predictions) +
                   " have one score each, of which the largest is always class 0. Of two classes, give the "
                   "predicted one: (logits > 0).to(kLong).squeeze(-1), of probabilities with > 0.5.");
}

/// Class numbers: the argmax of scores, or the predictions themselves if they are integers.
at::Tensor classes_of(const at::Tensor& predictions) {
  return predictions.is_floating_point() ? predictions.argmax(-1) : predictions;
}

at::Tensor on_host(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.detach().to(at::kCPU, dtype).contiguous().flatten();
}

template <class Value>
std::span<const Value> values_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<Value>(), static_cast<std::size_t>(tensor.numel())};
}

/// Replaces this rank's sums by those of all ranks.
template <class Value>
void add_up(std::span<Value> sums, const ProcessGroup& group) {
  const auto dtype = c10::CppTypeToScalarType<Value>::value;
  const at::Tensor here = at::from_blob(sums.data(), {static_cast<std::int64_t>(sums.size())}, dtype);
  // Always a copy: the group may need device memory or shared memory.
  const at::Tensor all = here.to(group.object_device(), dtype, false, true);
  group.all_reduce(all);
  here.copy_(all);
}

}  // namespace

void Accuracy::update(const at::Tensor& predictions, const at::Tensor& labels) {
  check_shapes("Accuracy", predictions, labels);
  check_has_classes("Accuracy", predictions);
  const at::Tensor truth = whole_labels("Accuracy", labels);
  const at::Tensor counts = truth != kIgnoredLabel;
  const at::Tensor right = (classes_of(predictions) == truth).logical_and(counts);
  const at::Tensor sums = at::stack({right.sum(), counts.sum()}).cpu();
  update(sums[0].item<std::int64_t>(), sums[1].item<std::int64_t>());
}

Accuracy Accuracy::of_all_ranks(const ProcessGroup& group) const {
  std::int64_t sums[] = {correct_, samples_};
  add_up<std::int64_t>(sums, group);
  Accuracy all;
  all.update(sums[0], sums[1]);
  return all;
}

void Classification::update(const at::Tensor& predictions, const at::Tensor& labels) {
  check_shapes("Classification", predictions, labels);
  check_has_classes("Classification", predictions);
  const auto classes = static_cast<std::int64_t>(hits_.size());
  if (predictions.is_floating_point() && predictions.size(-1) != classes) {
    throw UsageError(
        fmt::format("Classification: scores {} are not of {} classes.", shape_of(predictions), classes));
  }
  const at::Tensor answers = on_host(classes_of(predictions), at::kLong);
  const at::Tensor truth = on_host(whole_labels("Classification", labels), at::kLong);
  update(values_of<std::int64_t>(answers), values_of<std::int64_t>(truth));
}

Classification Classification::of_all_ranks(const ProcessGroup& group) const {
  Classification all = *this;
  std::vector<std::int64_t> sums;
  for (const auto* counts : {&hits_, &predicted_, &actual_})
    sums.insert(sums.end(), counts->begin(), counts->end());
  add_up<std::int64_t>(sums, group);
  auto from = sums.begin();
  for (auto* counts : {&all.hits_, &all.predicted_, &all.actual_}) {
    std::copy_n(from, counts->size(), counts->begin());
    from += static_cast<std::ptrdiff_t>(counts->size());
  }
  return all;
}

void Perplexity::update(const at::Tensor& logits, const at::Tensor& labels, bool shift) {
  check_shapes("Perplexity", logits, labels);
  if (!logits.is_floating_point() || labels.dim() != 2)
    throw UsageError("Perplexity: expected logits [rows, tokens, vocabulary] in floating point, got " +
                     shape_of(logits) + ".");
  const auto kept = std::max<std::int64_t>(0, labels.size(1) - (shift ? 1 : 0));
  const at::Tensor all = whole_labels("Perplexity", labels);
  const at::Tensor targets = (shift ? all.narrow(1, all.size(1) - kept, kept) : all).reshape({-1});
  const at::Tensor scores = logits.detach().narrow(1, 0, kept).reshape({-1, logits.size(-1)});
  const at::Tensor losses = at::cross_entropy_loss(scores.to(at::kFloat), targets, {},
                                                   at::Reduction::None, kIgnoredLabel);
  update(losses.sum(at::kDouble).item<double>(), (targets != kIgnoredLabel).sum().item<std::int64_t>());
}

Perplexity Perplexity::of_all_ranks(const ProcessGroup& group) const {
  double sums[] = {loss_sum_, static_cast<double>(tokens_)};
  add_up<double>(sums, group);
  Perplexity all;
  all.update(sums[0], static_cast<std::int64_t>(sums[1]));
  return all;
}

Bleu Bleu::of_all_ranks(const ProcessGroup& group) const {
  Bleu all = *this;
  add_up<std::int64_t>(all.sums_, group);
  return all;
}

void Regression::update(const at::Tensor& predictions, const at::Tensor& targets) {
  const auto outputs = static_cast<std::int64_t>(outputs_.size());
  const bool rows = targets.dim() == 2 ? targets.size(1) == outputs : targets.dim() == 1 && outputs == 1;
  if (!rows || predictions.sizes() != targets.sizes()) {
    throw UsageError(
        fmt::format("Regression: expected predictions and targets of one shape [rows, {}], got {} and {}.",
                    outputs, shape_of(predictions), shape_of(targets)));
  }
  const at::Tensor answers = on_host(predictions, at::kDouble);
  const at::Tensor truth = on_host(targets, at::kDouble);
  update(values_of<double>(answers), values_of<double>(truth));
}

std::vector<double> Regression::state() const {
  std::vector<double> numbers{samples_};
  for (const auto& each : outputs_)
    numbers.insert(numbers.end(), {each.squared, each.absolute, each.mean, each.spread});
  return numbers;
}

Regression Regression::of_all_ranks(const ProcessGroup& group) const {
  const std::vector<double> numbers = state();
  const at::Tensor mine = at::tensor(numbers, at::kDouble).to(group.object_device());
  const auto length = static_cast<std::size_t>(mine.numel());
  const at::Tensor all = at::empty({group.size() * mine.numel()}, mine.options());
  group.all_gather_into_tensor(all, mine);
  const at::Tensor here = all.cpu();
  Regression joined(static_cast<std::int64_t>(outputs_.size()));
  // In rank order, so that every rank gets the same bits.
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(group.size()); ++rank)
    joined.merge(values_of<double>(here).subspan(rank * length, length));
  return joined;
}

}  // namespace lockstep::metrics
