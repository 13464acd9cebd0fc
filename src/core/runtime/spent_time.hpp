#pragma once

#include <map>
#include <string>
#include <string_view>

namespace lockstep {

// How a thread spends its time, by the names of its ranges (trace::Range). A moment belongs to the innermost
// range, but those within "evaluation" and "checkpoint" belong to these. Time in which the thread waits for
// other ranks belongs to none. All functions are *Local*, about the calling thread, and do not throw.

/// A range begins. `owner` is any address that names it until its end.
void begin_part(const void* owner, std::string_view name) noexcept;
/// It ends, and with it those that began after it. Without an effect if it has ended.
void end_part(const void* owner) noexcept;

/// Seconds by name since the thread began, and "communication": those in which it waited for other ranks.
std::map<std::string, double> spent_time();

}  // namespace lockstep
