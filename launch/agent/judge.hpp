#pragma once

#include <vector>

#include "coordination/leader.hpp"

namespace lockstep::launch {

/// How the leader judges a failed round: by the records that agents sent (report/failure_record.hpp). Never
/// throws; what is no record counts for nothing.
Verdict judge_records(const std::vector<Json>& records);

}  // namespace lockstep::launch
