#pragma once

#include <functional>
#include <memory>

#include "lockstep/train/trackers.hpp"

namespace lockstep {

/// What `open` makes. In a process that replaces a lost one, or is the spare of one that lives and writes the
/// same files, it is made when it is used: by the first value that is logged, or at the end. Until then only
/// the step of resume_at() is noted, and hyper-parameters are those that the first process has logged.
std::unique_ptr<Tracker> opened_in_time(std::function<std::unique_ptr<Tracker>()> open);

}  // namespace lockstep
