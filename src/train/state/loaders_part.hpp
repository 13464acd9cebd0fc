#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/data_loader.hpp"
#include "train/state/checkpoint_part.hpp"

namespace lockstep::train {

/// The positions of the loaders. First in the list: every rank rejects a position that does not fit this
/// number of ranks before anything except positions has changed.
class LoadersPart : public CheckpointPart {
 public:
  /// `begins_anew`: an epoch whose data or order are other ones now is read from its beginning.
  explicit LoadersPart(std::vector<DataLoader::Position> loaders, bool begins_anew = false)
      : loaders_(std::move(loaders)), begins_anew_(begins_anew) {}

  void gather(const GatherOptions& options) override;
  void take_local() override;
  void detach(HostCopies&) override { loaders_.clear(); }
  void write(CheckpointFiles& files) const override;
  void describe(CheckpointInfo& info) const override;
  void read(const Checkpoint& checkpoint) override;
  void apply(const Accelerator& accelerator, const CheckpointInfo& info) override;
  std::string why_not_given() const override;

 private:
  std::vector<DataLoader::Position> loaders_;
  bool begins_anew_;
  /// DataLoaderState::parts of all ranks, per loader; empty except for streams.
  std::vector<std::vector<std::string>> parts_;
  std::vector<DataLoaderState> states_;
};

}  // namespace lockstep::train
