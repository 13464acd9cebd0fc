#pragma once

#include <string>

#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// The secret that launchers and ranks of one job prove to each other before they are served.
///
/// A job of one node makes up its own. The launchers of several nodes take it from LOCKSTEP_JOB_TOKEN, which
/// a batch script exports to all of them; where that is not set, it is worked out from a key that this user
/// keeps in $XDG_CONFIG_HOME/lockstep/key (else ~/.config/lockstep/key; made at the first use, readable by
/// its owner only), the run id, and the scheduler's number of the job. Homes that all nodes see, as on a
/// cluster, need nothing else.
class JobSecret {
 public:
  /// A fresh one.
  static JobSecret generate();
  /// The same on all nodes of the job. Throws UsageError, saying what to do, when there is none to be had: a
  /// token that is too short, no home, a key file that others may read.
  static JobSecret shared(const std::string& run_id, const Environment& environment);

  const std::string& value() const noexcept { return value_; }
  /// It came from LOCKSTEP_JOB_TOKEN, so that it tells this job from all others, even of this user.
  bool given() const noexcept { return given_; }

 private:
  JobSecret(std::string value, bool given) : value_(std::move(value)), given_(given) {}

  std::string value_;
  bool given_ = false;
};

}  // namespace lockstep::launch
