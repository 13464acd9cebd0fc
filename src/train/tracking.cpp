#include "lockstep/train/tracking.hpp"

#include <ATen/ATen.h>

#include <optional>
#include <span>

namespace lockstep {

struct Tracking::State {
  explicit State(bool writes_here) : writes(writes_here) {}

  void add(std::unique_ptr<Tracker> tracker) {
    if (resumed_at) tracker->resume_at(*resumed_at);
    trackers->add(std::move(tracker));
  }

  bool writes;
  std::unique_ptr<Trackers> trackers = std::make_unique<Trackers>();
  std::optional<std::int64_t> resumed_at;
};

Tracking::Tracking(bool writes) : state_(std::make_shared<State>(writes)) {}

void Tracking::init_trackers(const TrackerOptions& options, const HyperParameters& parameters,
                             const std::vector<std::string>& metrics) {
  if (!state_->writes) return;
  auto opened = std::make_unique<Trackers>(options);
  auto* const trackers = opened.get();
  state_->add(std::move(opened));
  if (!parameters.empty() || !metrics.empty()) trackers->log_hyperparameters(parameters, metrics);
}

void Tracking::add_tracker(std::unique_ptr<Tracker> tracker) {
  if (state_->writes && tracker) state_->add(std::move(tracker));
}

void Tracking::log(const LogValues& values, std::int64_t step) const { state_->trackers->log(values, step); }

void Tracking::log_text(const std::string& name, const std::string& text, std::int64_t step) const {
  state_->trackers->log_text(name, text, step);
}

void Tracking::log_histogram(const std::string& name, const at::Tensor& tensor, std::int64_t step) const {
  if (!state_->writes) return;
  const at::Tensor values = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  const std::span<const double> elements(values.const_data_ptr<double>(),
                                         static_cast<std::size_t>(values.numel()));
  state_->trackers->log_histogram(name, histogram_of(elements), step);
}

void Tracking::end_training() {
  state_->trackers->finish();
  state_->trackers = std::make_unique<Trackers>();
  state_->resumed_at.reset();
}

void Tracking::trackers_resume_at(std::int64_t step) {
  state_->resumed_at = step;
  state_->trackers->resume_at(step);
}

}  // namespace lockstep
