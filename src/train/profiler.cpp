#include "lockstep/train/profiler.hpp"

#include <ATen/record_function.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <iostream>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// torch.profiler's ProfilerAction.
enum class ProfilerAction { none, warmup, record, record_and_save };

namespace {

namespace fs = std::filesystem;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

using Action = ProfilerAction;

Action action_of(const ProfileSchedule& schedule, std::int64_t step) {
  if (step < schedule.skip_first) return Action::none;
  const std::int64_t cycle = schedule.wait + schedule.warmup + schedule.active;
  const std::int64_t since = step - schedule.skip_first;
  if (schedule.repeat > 0 && since / cycle >= schedule.repeat) return Action::none;
  const std::int64_t place = since % cycle;
  if (place < schedule.wait) return Action::none;
  if (place < schedule.wait + schedule.warmup) return Action::warmup;
  return place < cycle - 1 ? Action::record : Action::record_and_save;
}

bool records(Action action) { return action == Action::record || action == Action::record_and_save; }

void check_schedule(const ProfileSchedule& schedule) {
  const bool negative =
      schedule.skip_first < 0 || schedule.wait < 0 || schedule.warmup < 0 || schedule.repeat < 0;
  if (negative || schedule.active < 1) {
    throw UsageError(fmt::format(
        "a profile's schedule needs active >= 1 and nothing negative; got skip_first={}, wait={}, warmup={}, "
        "active={}, repeat={}.",
        schedule.skip_first, schedule.wait, schedule.warmup, schedule.active, schedule.repeat));
  }
}

}  // namespace

class Profiler::Impl {
 public:
  Impl(ProfileOptions options, int rank)
      : options_(std::move(options)),
        rank_(rank),
        config_(ProfilerState::KINETO, options_.record_shapes, options_.profile_memory, /*with_stack=*/false,
                options_.with_flops) {
    check_schedule(options_.schedule_option);
    if (torch::profiler::impl::profilerEnabled())
      throw UsageError("this thread already has a profiler: end it before starting another.");
    if (cuda_device_count() > 0) {
      activities_.insert(ActivityType::CUDA);
    } else {
      // Kineto reports a machine without a GPU as an error.
      set_default_variable("KINETO_LOG_LEVEL", "5");
    }
    begin_step();
  }

  ~Impl() {
    try {
      stop();
    } catch (const std::exception& error) {
      std::cerr << "warning: the profile is lost: " << error.what() << '\n';
    }
  }

  void step() {
    if (stopped_) return;
    mark_.reset();
    if (state_ == Action::record_and_save) write();
    ++step_;
    begin_step();
  }

  void stop() {
    mark_.reset();
    stopped_ = true;
    if (records(state_)) write();
    if (state_ == Action::warmup) torch::autograd::profiler::disableProfiler();
    state_ = Action::none;
  }

  const std::vector<fs::path>& traces() const { return traces_; }

 private:
  void begin_step() {
    const Action next = action_of(options_.schedule_option, step_);
    // What was recorded during warm-up is discarded when the first step is recorded.
    if (state_ == Action::warmup && records(next)) torch::autograd::profiler::disableProfiler();
    if (next != Action::none && next != state_ && !records(state_)) {
      torch::autograd::profiler::prepareProfiler(config_, activities_);
      torch::autograd::profiler::enableProfiler(
          config_, activities_,
          {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE});
    }
    state_ = next;
    if (!records(state_)) return;
    // TensorBoard's plugin identifies steps by this name.
    mark_.emplace(at::RecordScope::USER_SCOPE);
    if (mark_->isActive()) mark_->before(fmt::format("ProfilerStep#{}", step_));
  }

  void write() {
    state_ = Action::none;
    const auto result = torch::autograd::profiler::disableProfiler();
    const fs::path path = options_.output_trace_dir / fmt::format("rank_{}.{}.pt.trace.json", rank_, step_);
    std::error_code failure;
    fs::create_directories(options_.output_trace_dir, failure);
    if (!failure) result->save(path.string());
    if (failure || !fs::exists(path)) {
      throw Error(fmt::format("cannot write the trace '{}'{}{}: expected a folder that can be written to.",
                              path.string(), failure ? ": " : "", failure ? failure.message() : ""));
    }
    traces_.push_back(path);
  }

  ProfileOptions options_;
  int rank_;
  ProfilerConfig config_;
  std::set<ActivityType> activities_ = {ActivityType::CPU};
  std::int64_t step_ = 0;
  Action state_ = Action::none;
  bool stopped_ = false;
  std::optional<at::RecordFunction> mark_;
  std::vector<fs::path> traces_;
};

Profiler::Profiler(ProfileOptions options, int rank)
    : impl_(std::make_unique<Impl>(std::move(options), rank)) {}
Profiler::~Profiler() = default;
void Profiler::step() { impl_->step(); }
void Profiler::stop() { impl_->stop(); }
const std::vector<fs::path>& Profiler::traces() const { return impl_->traces(); }

}  // namespace lockstep
