#include "train/trackers/tracker_of_successor.hpp"

#include <optional>
#include <utility>

#include "core/elastic/recovery_messages.hpp"
#include "lockstep/core/environment.hpp"

namespace lockstep {
namespace {

class TrackerOfSuccessor final : public Tracker {
 public:
  explicit TrackerOfSuccessor(std::function<std::unique_ptr<Tracker>()> open) : open_(std::move(open)) {}

  void log(const LogValues& values, std::int64_t step) override { opened().log(values, step); }
  void log_text(const std::string& name, const std::string& text, std::int64_t step) override {
    opened().log_text(name, text, step);
  }
  void log_histogram(const std::string& name, const Histogram& histogram, std::int64_t step) override {
    opened().log_histogram(name, histogram, step);
  }
  void log_hyperparameters(const HyperParameters& parameters,
                           const std::vector<std::string>& metrics) override {
    if (tracker_) tracker_->log_hyperparameters(parameters, metrics);
  }
  void resume_at(std::int64_t step) override {
    resumed_at_ = step;
    if (tracker_) tracker_->resume_at(step);
  }
  void finish() override { opened().finish(); }

 private:
  Tracker& opened() {
    if (!tracker_) {
      tracker_ = open_();
      if (resumed_at_) tracker_->resume_at(*resumed_at_);
    }
    return *tracker_;
  }

  std::function<std::unique_ptr<Tracker>()> open_;
  std::unique_ptr<Tracker> tracker_;
  std::optional<std::int64_t> resumed_at_;
};

}  // namespace

std::unique_ptr<Tracker> opened_in_time(std::function<std::unique_ptr<Tracker>()> open) {
  if (!find_variable(process_environment(), elastic::kReplacesVariable)) return open();
  return std::make_unique<TrackerOfSuccessor>(std::move(open));
}

}  // namespace lockstep
