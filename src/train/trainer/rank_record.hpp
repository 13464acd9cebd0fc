#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/training_arguments.hpp"

namespace lockstep::train {

/// Whether a tracker writes files that a report draws. *Local*.
bool writes_files(const TrainingArguments& args);

/// What a rank of a training says of itself in `<output_dir>/ranks/rank-<rank>.json`, for `lockstep report`:
/// its host and that's hardware, how the thread that trains has spent its time, and the most memory that it
/// had. Written by each rank alone, and complete whenever it is read. *Local*; in the thread that trains.
class RankRecord {
 public:
  /// The time counts from here. `continues`: that of the file which is there is added, as for a resumed
  /// training.
  RankRecord(const Accelerator& accelerator, const std::filesystem::path& output_dir, bool continues);

  /// This process replaces a lost one of the rank, while the others go on.
  void note_recovery();

  /// Writes the file. A report can do without it: if it cannot be written, this is said once on standard
  /// error, and not tried again.
  void write() noexcept;
  /// Writes it if that was some seconds ago.
  void write_if_old() noexcept;

 private:
  std::string text() const;
  void take(const std::string& before);

  const Accelerator& accelerator_;
  std::filesystem::path path_;
  bool can_write_ = true;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now(), written_ = begin_;
  /// Of the runs before.
  double seconds_before_ = 0;
  std::map<std::string, double> before_;
  /// When lost processes were replaced, in seconds since 1970.
  std::vector<double> recoveries_;
  /// Of this thread, before this began.
  std::map<std::string, double> at_begin_;
};

}  // namespace lockstep::train
