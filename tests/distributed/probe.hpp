#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/train/accelerator.hpp"

/// What one rank of a test job does. Each scenario is a function of the words after its name; it returns the
/// exit code of the process, or throws like a user's program.
namespace probe {

using Words = std::vector<std::string>;
using std::chrono::milliseconds;

/// The CPU, or what the variable PROBE_DEVICE names; "cuda" is the GPU with the number of this local rank.
at::Device device();

/// Joins the job that the environment describes. Short timeouts, so that no test hangs. `timeout` is that of
/// collectives.
lockstep::Accelerator join(milliseconds timeout = std::chrono::seconds(40),
                           milliseconds join_timeout = std::chrono::seconds(40));

/// The argument with this index; throws UsageError if there are fewer.
const std::string& argument(const Words& words, std::size_t index);

/// Kills this process with SIGKILL after `delay`, whatever it is doing.
void die_after(milliseconds delay);

// probe_collectives.cpp: every collective, with numbers that are checked on every rank.
int collectives(const Words& words);

// probe_order.cpp: main_process_first, and files.
int order(const Words& words);
int local_order(const Words& words);
int slow_main(const Words& words);
int main_throws(const Words& words);
int guard_throws(const Words& words);
int save(const Words& words);

// probe_faults.cpp: ranks that die, leave, hang or disagree.
int hello(const Words& words);
int join_within(const Words& words);
int killed_in_all_reduce(const Words& words);
int killed_in_barrier(const Words& words);
int killed_in_backward(const Words& words);
int killed_in_sharded_backward(const Words& words);
int throws(const Words& words);
int leaves_early(const Words& words);
/// Joins the others, and then writes a warning to LibTorch's log.
int library_warning(const Words& words);
int stops(const Words& words);
int hangs(const Words& words);
int leaves_in_collectives(const Words& words);
int crashes(const Words& words);
int always_fails(const Words& words);
int train(const Words& words);
int mismatch(const Words& words);

// probe_watch.cpp: ranks that leave, hang or call something else while others are in a collective.
int disagree(const Words& words);
int awaited(const Words& words);
int killed_in(const Words& words);
int traced(const Words& words);

}  // namespace probe
