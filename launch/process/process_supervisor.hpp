#pragma once

#include <vector>

#include "lockstep/core/environment.hpp"
#include "process/orphan_reaper.hpp"
#include "process/signal_fd.hpp"
#include "process/temporary_folder.hpp"

namespace lockstep::launch {

/// What a launcher needs before it may start threads or ranks: signals become events in every thread, and a
/// orphan reaper, which is forked and so must come first, watches over what is started later.
struct ProcessSupervisor {
  ProcessSupervisor(const Environment& environment, const std::vector<int>& end_signals, bool keep_daemons)
      : signals(end_signals),
        folder(environment),
        mark(environment),
        reaper(folder.path(), keep_daemons ? "" : mark.word()) {}

  SignalFd signals;
  TemporaryFolder folder;
  /// To be put into the environment of all that is started.
  JobTag mark;
  OrphanReaper reaper;
};

}  // namespace lockstep::launch
