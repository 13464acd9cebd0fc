#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <algorithm>
#include <iostream>

#include "lockstep/parallel/ddp_statistics.hpp"
#include "parallel/straggler_detector.hpp"

namespace lockstep::parallel {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kNanosecondsInMs = 1e6;

double ms(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / kNanosecondsInMs; }

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace

StragglerDetector::StragglerDetector(const ProcessGroup& group, const StragglerOptions& options)
    : group_(group), options_(options), slow_reports_(static_cast<std::size_t>(group.size())) {}

void StragglerDetector::step(const std::optional<StepTimes>& last, bool compares) {
  if (last) {
    sums_.forward += last->forward;
    sums_.backward_compute += last->backward_compute;
    sums_.communication += last->communication;
    sums_.hidden += last->hidden;
    waits_ += last->communication - last->hidden;
  }
  // The first step includes one-time costs, and is not counted.
  if (steps_++ == 0) begin_ = Clock::now();
  if (sent_) take_report();
  // Decided by values that are the same on all ranks.
  const bool due = options_.every != 0 && steps_ > 1 && (steps_ - 1) % options_.every == 0;
  if (due && compares) send_report();
}

void StragglerDetector::send_report() {
  const double compute = ms_since(begin_) - ms(waits_);
  compute_sum_ += compute;
  begin_ = Clock::now();
  waits_ = 0;
  const auto numbers = at::TensorOptions(group_.object_device()).dtype(at::kDouble);
  mine_ = at::full({1}, compute / static_cast<double>(options_.every), numbers);
  all_ = at::empty({group_.size()}, numbers);
  sent_ = group_.all_gather_into_tensor_async(all_, mine_);
}

/// One step later, when all ranks have sent theirs, so that this does not wait.
void StragglerDetector::take_report() {
  sent_->wait();
  sent_.reset();
  const at::Tensor here = all_.to(at::kCPU);
  computes_.assign(here.const_data_ptr<double>(), here.const_data_ptr<double>() + here.numel());
  const std::string text = complaints();
  if (group_.rank() == 0 && !text.empty()) std::cerr << text << std::flush;
}

std::string StragglerDetector::complaints() {
  const auto fastest = std::min_element(computes_.begin(), computes_.end());
  std::string text;
  for (std::size_t rank = 0; rank < computes_.size(); ++rank) {
    const double score = *fastest / computes_[rank];
    int& reports = slow_reports_[rank];
    reports = score < options_.threshold ? reports + 1 : 0;
    // Printed once, and then repeated at intervals while it lasts.
    if (reports != options_.reports && (reports == 0 || reports % (10 * options_.reports) != 0)) continue;
    text += fmt::format(
        "lockstep: warning: rank {} is slow: it computed for {:.2f} ms a step in the last {} steps, the "
        "fastest, rank {}, for {:.2f} (relative score {:.2f}, {} reports in a row)\n",
        rank, computes_[rank], options_.every, fastest - computes_.begin(), *fastest, score, reports);
  }
  return text;
}

void StragglerDetector::add_to(DdpStatistics& statistics) const {
  const auto steps = static_cast<double>(std::max<std::int64_t>(steps_ - 1, 1));
  statistics.steps = steps_;
  statistics.forward = ms(sums_.forward) / steps;
  statistics.backward_compute = ms(sums_.backward_compute) / steps;
  statistics.communication = ms(sums_.communication) / steps;
  statistics.hidden = ms(sums_.hidden) / steps;
  if (steps_ > 1) statistics.compute = (compute_sum_ + ms_since(begin_) - ms(waits_)) / steps;
  if (computes_.empty()) return;
  const double fastest = *std::min_element(computes_.begin(), computes_.end());
  for (const double compute : computes_) statistics.relative_scores.push_back(fastest / compute);
}

}  // namespace lockstep::parallel
