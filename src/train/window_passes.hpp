#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "lockstep/data/data_loader.hpp"

namespace lockstep::train {

/// The passes over prepared loaders in which the micro-batches of an accumulation window are read.
///
/// A loop may read several loaders: side by side (one batch of each in every micro-batch, the shorter one
/// anew when it ends), in turn, or one inside of the other. The loop's end is the end of all passes in
/// progress, or of one that advances in every micro-batch. Loaders that are read in turn do not: there, the
/// first one to reach its last batch is not the end. A window goes on across passes, as in Accelerate, with
/// one exception: if its only loader begins another pass before the end of the last one, the program has
/// left its loop, and the window is abandoned.
class WindowPasses {
 public:
  /// Called at the beginning of a micro-batch.
  void look(const std::vector<DataLoader::Position>& loaders);

  /// Whether the window of the micro-batches since begin_window() is abandoned.
  bool is_abandoned() const noexcept { return abandoned_; }
  /// The micro-batch is the first of a window.
  void begin_window();

  /// Whether the loop ends with this micro-batch.
  bool at_end() const;
  /// Micro-batches until the loop's end, this one included, as far as it is known.
  std::optional<std::int64_t> remaining() const;

 private:
  struct Reading {
    DataLoaderProgress progress;
    /// Whether it has advanced in this micro-batch, and also in the one before.
    bool advances = false;
    bool advances_always = false;
  };

  /// By the loader's number: those in progress.
  std::map<std::size_t, Reading> readings_;
  /// The pass of each loader that was in progress in a micro-batch of the window.
  std::map<std::size_t, std::uint64_t> of_window_;
  bool abandoned_ = false;
};

}  // namespace lockstep::train
