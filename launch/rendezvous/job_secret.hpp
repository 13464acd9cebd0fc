#pragma once

#include <string>

#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// The secret that launchers and ranks of one job prove to each other before they are served.
///
/// A job of one node generates its own. The launchers of several nodes take it from LOCKSTEP_JOB_TOKEN, which
/// a batch script exports to all of them. If that is not set, it is derived from a key of this user, the run
/// id, and the scheduler's job id. The key is in $XDG_CONFIG_HOME/lockstep/key (otherwise
/// ~/.config/lockstep/key); it is created on first use and is readable by its owner only. Nodes that share
/// home directories, as on a cluster, need nothing else.
struct JobSecret {
  std::string value;
  /// Which secret this launcher uses and how all nodes get one, for messages about nodes with another secret.
  std::string name;
  bool is_none = false;

  /// A random secret.
  static JobSecret generate();
  /// The same on all nodes of the job. Throws UsageError, with what to do, if there is none: a token that is
  /// too short, no home directory, a key file that others may read.
  static JobSecret from_env(const std::string& run_id, const Environment& environment);
  /// A public value (--no-job-secret), for networks where every host is trusted.
  static JobSecret none(const std::string& run_id);
};

}  // namespace lockstep::launch
