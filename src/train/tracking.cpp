#include "lockstep/train/tracking.hpp"

#include <ATen/ATen.h>

#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <span>
#include <utility>

#include "comm/planner_link.hpp"

namespace lockstep {

struct Tracking::State {
  explicit State(bool writes_here) : writes(writes_here) {}

  void add(std::unique_ptr<Tracker> tracker) {
    if (resumed_at) tracker->resume_at(*resumed_at);
    trackers->add(std::move(tracker));
  }

  /// Opens them now. In a process that replaces a lost one, when the training gives it its state: until then
  /// the lost one may live, beside its spare, and write its files; after that they continue after that step.
  void open(TrackerOptions options, const std::function<void(std::unique_ptr<Trackers>)>& begin) {
    if (!waits_for_state) return begin(std::make_unique<Trackers>(options));
    options.resume_at.reset();
    waiting.emplace_back([options, begin] { begin(std::make_unique<Trackers>(options)); });
  }

  void open_waiting() {
    waits_for_state = false;
    for (const auto& open : std::exchange(waiting, {})) open();
  }

  bool writes;
  bool waits_for_state = writes && comm::replacement_of_this_process().has_value();
  std::vector<std::function<void()>> waiting;
  std::unique_ptr<Trackers> trackers = std::make_unique<Trackers>();
  std::optional<std::int64_t> resumed_at;
  /// The number of the training whose trackers are open, 0 if none are; and its trackers, if this process
  /// writes.
  std::uint64_t run = 0, runs = 0;
  const Tracker* of_run = nullptr;

  /// `succeeded`: nothing has failed; otherwise the trackers are closed without an end.
  void close_run(bool succeeded = true) {
    const auto closed = trackers->remove(of_run);
    run = 0;
    of_run = nullptr;
    resumed_at.reset();
    if (closed && succeeded) closed->finish();
  }
};

struct RunTrackers::Impl {
  std::shared_ptr<Tracking::State> state;
  std::uint64_t run;
};

RunTrackers::RunTrackers(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RunTrackers::~RunTrackers() {
  try {
    // An exception that passes ends the training, too.
    if (is_open()) impl_->state->close_run(std::uncaught_exceptions() == 0);
  } catch (const std::exception& error) {
    std::cerr << "lockstep: a run's trackers could not be closed: " << error.what() << std::endl;
  }
}

bool RunTrackers::is_open() const noexcept { return impl_->state->run == impl_->run; }

void RunTrackers::close() {
  if (is_open()) impl_->state->close_run();
}

Tracking::Tracking(bool writes) : state_(std::make_shared<State>(writes)) {}

void Tracking::init_trackers(const TrackerOptions& options, const HyperParameters& parameters,
                             const std::vector<std::string>& metrics) {
  if (!state_->writes) return;
  State* const state = state_.get();
  state->open(options, [=](std::unique_ptr<Trackers> opened) {
    auto* const trackers = opened.get();
    state->add(std::move(opened));
    if (!parameters.empty() || !metrics.empty()) trackers->log_hyperparameters(parameters, metrics);
  });
}

std::shared_ptr<RunTrackers> Tracking::init_run_trackers(const TrackerOptions& options,
                                                         const HyperParameters& parameters) {
  // What is opened now continues after the checkpoint's step, whatever was open before.
  const auto resumed_at = state_->resumed_at;
  if (state_->run != 0) state_->close_run();
  state_->resumed_at = resumed_at;
  state_->run = ++state_->runs;
  if (state_->writes) {
    State* const state = state_.get();
    state->open(options, [=, run = state->run](std::unique_ptr<Trackers> opened) {
      if (state->run != run) return;
      auto* const trackers = opened.get();
      state->add(std::move(opened));
      state->of_run = trackers;
      if (!parameters.empty()) trackers->log_hyperparameters(parameters, {});
    });
  }
  return std::shared_ptr<RunTrackers>(
      new RunTrackers(std::make_unique<RunTrackers::Impl>(RunTrackers::Impl{state_, state_->run})));
}

void Tracking::add_tracker(std::unique_ptr<Tracker> tracker) {
  if (!state_->writes || !tracker) return;
  if (!state_->waits_for_state) return state_->add(std::move(tracker));
  const auto kept = std::make_shared<std::unique_ptr<Tracker>>(std::move(tracker));
  State* const state = state_.get();
  state->waiting.emplace_back([kept, state] { state->add(std::move(*kept)); });
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
  state_->run = 0;
  state_->of_run = nullptr;
  state_->trackers->finish();
  state_->trackers = std::make_unique<Trackers>();
  state_->waiting.clear();
  state_->resumed_at.reset();
}

void Tracking::trackers_resume_at(std::int64_t step) {
  state_->resumed_at = step;
  state_->trackers->resume_at(step);
  state_->open_waiting();
}

}  // namespace lockstep
