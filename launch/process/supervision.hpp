#pragma once

#include <vector>

#include "lockstep/core/environment.hpp"
#include "process/guardian.hpp"
#include "process/job_mark.hpp"
#include "process/signal_queue.hpp"
#include "process/temporary_folder.hpp"

namespace lockstep::launch {

/// What a launcher needs before it may start threads or ranks: signals become events in every thread, and a
/// guardian, which is forked and so must come first, watches over what is started later.
struct Supervision {
  Supervision(const Environment& environment, const std::vector<int>& end_signals, bool keep_daemons)
      : signals(end_signals),
        folder(environment),
        mark(environment),
        guardian(folder.path(), keep_daemons ? "" : mark.word()) {}

  SignalQueue signals;
  TemporaryFolder folder;
  /// To be put into the environment of all that is started.
  JobMark mark;
  Guardian guardian;
};

}  // namespace lockstep::launch
