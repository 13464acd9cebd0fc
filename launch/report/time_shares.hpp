#pragma once

#include <map>
#include <string>
#include <vector>

#include "report/run_record.hpp"
#include "trace/rank_trace.hpp"

namespace lockstep::launch {

/// How a rank spent the time that its trace covers, on the thread that trains: in the program's ranges
/// (forward, backward, optimizer, and its own), in backward while it communicated, in communication outside
/// of them, and between the ranges; all that lies within "evaluation" or "checkpoint" is that. Seconds are 0
/// if the trace has no ranges. *Local*.
SpentTime spent_time_of(const RankTrace& trace);

/// That of `who`, of whose seconds the named ones are known. *Local*.
SpentTime spent_time_of(std::string who, double seconds, std::map<std::string, double> parts);

/// An evaluation of the training: when it ended, in seconds since 1970 on the host of rank 0, and its length.
struct LoggedEvaluation {
  double end = 0;
  double seconds = 0;
};

/// Adds ranges "evaluation" for those that a trace covers. `reference` is the trace of the rank that logged
/// them, on whose clock they are. *Local*.
void add_evaluations(RankTrace& trace, const RankTrace& reference,
                     const std::vector<LoggedEvaluation>& evaluations);

/// The mean over ranks, with the ranges of all of them. *Local*.
SpentTime mean_of(const std::vector<SpentTime>& ranks);

/// The names of what is not a range of the program; the last one stands for everything but evaluations.
inline constexpr const char* kBetweenRanges = "between steps";
inline constexpr const char* kCommunication = "communication";
inline constexpr const char* kCommunicationAlone = "communication alone";
inline constexpr const char* kOverlapped = "backward while communicating";
inline constexpr const char* kTraining = "training steps, loading and checkpoints";

}  // namespace lockstep::launch
