#include <fmt/core.h>
#include <unistd.h>

#include <atomic>

#include "core/host_name.hpp"
#include "lockstep/train/trackers.hpp"
#include "train/trackers/line_file.hpp"
#include "train/trackers/tensorboard_events.hpp"
#include "train/trackers/tracker_of_successor.hpp"

namespace lockstep {
namespace {

/// TensorBoard reads the files of a folder in the order of their names, which begin with the time.
std::string file_name() {
  static std::atomic<int> counter{0};
  return fmt::format("events.out.tfevents.{:010}.{}.{}.{}", static_cast<std::int64_t>(wall_time()),
                     host_name(), ::getpid(), counter++);
}

class TensorBoardTracker final : public Tracker {
 public:
  explicit TensorBoardTracker(const std::filesystem::path& folder) : file_(folder / file_name()) {
    write(events::file_version(wall_time()));
  }

  void log(const LogValues& values, std::int64_t step) override {
    const double time = wall_time();
    std::string records;
    for (const auto& [name, value] : values)
      records += events::record(events::scalar(time, step, name, value));
    file_.append(records);
  }
  void log_text(const std::string& name, const std::string& text, std::int64_t step) override {
    write(events::text(wall_time(), step, name, text));
  }
  void log_histogram(const std::string& name, const Histogram& histogram, std::int64_t step) override {
    write(events::histogram(wall_time(), step, name, histogram));
  }
  void log_hyperparameters(const HyperParameters& parameters,
                           const std::vector<std::string>& metrics) override {
    const double time = wall_time();
    write(events::experiment(time, parameters, metrics));
    write(events::session_values(time, parameters));
    has_session_ = true;
  }
  /// Two starts: TensorBoard drops what comes after the step of a start, except at the first one of a run,
  /// which may be this one.
  void resume_at(std::int64_t step) override {
    const auto start = events::session_start(wall_time(), step + 1);
    write(start);
    write(start);
  }
  void finish() override {
    if (has_session_) write(events::session_end(wall_time()));
  }

 private:
  void write(const std::string& event) { file_.append(events::record(event)); }

  AppendedFile file_;
  bool has_session_ = false;
};

}  // namespace

std::unique_ptr<Tracker> make_tensorboard_tracker(const std::filesystem::path& folder) {
  return opened_in_time([folder] { return std::make_unique<TensorBoardTracker>(folder); });
}

}  // namespace lockstep
