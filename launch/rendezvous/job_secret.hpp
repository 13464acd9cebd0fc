#pragma once

#include <string>

#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// The secret that launchers and ranks of one job prove to each other before they are served.
///
/// A job of one node generates its own. The launchers of several nodes take it from LOCKSTEP_JOB_TOKEN, which
/// a batch script exports to all of them; where that is not set, it is worked out from a key that this user
/// keeps in $XDG_CONFIG_HOME/lockstep/key (else ~/.config/lockstep/key; made at the first use, readable by
/// its owner only), the run id, and the scheduler's number of the job. Homes that all nodes see, as on a
/// cluster, need nothing else.
struct JobSecret {
  std::string value;
  /// Which secret this launcher uses and how all nodes get one, for messages about nodes that know another.
  std::string name;
  bool is_none = false;

  /// A fresh one.
  static JobSecret generate();
  /// The same on all nodes of the job. Throws UsageError, saying what to do, when there is none to be had: a
  /// token that is too short, no home, a key file that others may read.
  static JobSecret from_env(const std::string& run_id, const Environment& environment);
  /// What everybody knows (--no-job-secret): for networks where every host is trusted.
  static JobSecret none(const std::string& run_id);
};

}  // namespace lockstep::launch
