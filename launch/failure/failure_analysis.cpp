#include "failure/failure_analysis.hpp"

#include <fmt/core.h>
#include <sys/wait.h>

#include <algorithm>
#include <map>

#include "core/byte_size.hpp"
#include "core/text.hpp"
#include "core/time.hpp"
#include "failure/error_file.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

/// The exit status of a job that was ended because of a hang, as that of timeout(1).
constexpr int kHangStatus = 124;

bool saved_or_succeeded(const ProcessFailure& record) {
  return record.status == 0 || record.status == kPreemptedExitCode << 8;
}

// Finding the root cause. When one rank fails, most others fail within milliseconds: they lose the connection
// to it, run into a timeout, are aborted by NCCL's watchdog, or are stopped by their launcher. The records of
// all of them arrive, and none says "I was first". Their order is that in which the nodes' reports reached
// the coordinator, not that of the failures, and times are of no use, because clocks of hosts differ.
//
// So each record is weighed by itself: how the rank ended (by a signal, by the OOM killer, or not at all in a
// hang), whether it left a message of its own, and whether it says that it only lost another rank
// (is_secondary, from its error file). The words of a message are never interpreted: a program may print
// anything. The first report counts, unless its weight is low and another one's is higher:
//
//     weight of the first report   is overruled by
//     crash, own_error             nothing: whatever came later may be a consequence
//     silent                       a crash: a rank may exit without a word because it lost its peer
//     secondary, stopped           silent, own_error or crash; the heaviest, and the first of equals
//
// A crash is also a hang, and a kill by the OOM killer. A rank that its launcher stopped has the lowest
// weight, like one that succeeded, unless it left a message. If only victims reported, the first of them is
// named: some rank has to be.

/// How likely a failure is the cause of others, in ascending order. `stopped`: it ended without a message
/// after it was asked to.
enum class Weight { stopped, secondary, silent, own_error, crash };

/// Killed by a signal that the launcher did not send, and that is not a usual consequence of another rank's
/// end.
bool crashed(const ProcessFailure& failure) {
  if (!failure.status || failure.stopped || !WIFSIGNALED(*failure.status)) return false;
  // A program may abort, or get SIGPIPE, because another rank has ended; requests to stop are not crashes.
  const auto consequences = {SIGABRT, SIGPIPE, SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  return std::ranges::count(consequences, WTERMSIG(*failure.status)) == 0;
}

Weight weight_of(const ProcessFailure& failure) {
  if (failure.hung || failure.killed_by_oom()) return Weight::crash;
  if (failure.is_secondary) return Weight::secondary;
  if (crashed(failure)) return Weight::crash;
  if (!failure.message.empty()) return Weight::own_error;
  return failure.failed() ? Weight::silent : Weight::stopped;
}

/// A rank that exited without a message may have failed because it lost a peer.
bool has_own_cause(const ProcessFailure& failure) {
  const bool by_signal = failure.failed() && failure.status && WIFSIGNALED(*failure.status);
  return by_signal || weight_of(failure) >= Weight::own_error;
}

/// Number of other ranks with details.
constexpr int kMostDetailed = 8;

/// Longer texts are dumps, not messages.
constexpr std::size_t kLongestMessage = 4096;
/// The report has the whole message before.
constexpr std::size_t kLongestHeadline = 300;

std::string quote_text(std::string message, const std::string& indent = "  ") {
  while (message.ends_with('\n')) message.pop_back();
  return indent_lines(remove_control_characters(shorten_text(message, kLongestMessage)), indent);
}

std::string name_rank(const ProcessFailure& failure) {
  return fmt::format("rank {} ({}local rank {}{}, {}) ", failure.rank,
                     failure.node.empty() ? "" : failure.node + ", ", failure.local_rank,
                     failure.pid == 0 ? "" : fmt::format(", pid {}", failure.pid), failure.program);
}

/// "; this one had 2.5 GiB", or empty if unknown.
std::string memory_text(const ProcessFailure& failure) {
  if (failure.peak_memory <= 0) return "";
  return "; this one had " + bytes_text(static_cast<std::uint64_t>(failure.peak_memory));
}

/// Who may have sent a SIGKILL that the launcher did not send.
std::string explain_kill(const ProcessFailure& failure) {
  if (failure.status != SIGKILL || failure.hung || failure.killed) return "";
  if (failure.killed_by_oom()) {
    return fmt::format(
        "  killed by the kernel's OOM killer ({} process(es) of this job on this host{}): start fewer ranks, "
        "use smaller batches, or raise the memory limit of the job.\n",
        *failure.oom_kills, memory_text(failure));
  }
  if (failure.oom_kills) {
    return "  The launcher did not send it, and the kernel's OOM killer killed no process of this job: "
           "another process did (kill -9, or the batch system).\n";
  }
  return "  The launcher did not send it. No cgroup tells whether the kernel's OOM killer did: see dmesg, or "
         "the memory limit of the job.\n";
}

/// A traceback usually ends with the message.
std::string message_text(const ProcessFailure& record) {
  const std::string traceback = traceback_of(record.error);
  const bool repeated = !traceback.empty() && traceback.find(record.message) != std::string::npos;
  return (repeated ? "" : quote_text(record.message)) + quote_text(traceback);
}

/// " at 2026-01-31 12:00:00"; empty if unknown. The time in an error file may be any number.
std::string format_moment(const ProcessFailure& record) {
  for (const std::int64_t time : {time_of(record.error), record.time}) {
    const std::string text = time == 0 ? "" : format_time(time, "%Y-%m-%d %H:%M:%S", localtime_r);
    if (!text.empty()) return " at " + text;
  }
  return "";
}

/// "at 2026-01-31 12:00:00 on host a, error file /logs/error.json".
std::string describe_circumstances(const ProcessFailure& record) {
  std::string text = format_moment(record);
  if (!record.host.empty()) text += " on host " + record.host;
  if (!record.error_file.empty()) text += (text.empty() ? " " : ", ") + ("error file " + record.error_file);
  return text.empty() ? "" : quote_text(text.substr(1));
}

std::string end_of_log(const ProcessFailure& record) {
  if (record.last_lines.empty()) return "";
  const std::string what = record.log_file.empty() ? "its standard error" : record.log_file;
  return "  The end of " + what + ":\n" + quote_text(record.last_lines, "    ");
}

std::string describe_details(const ProcessFailure& record) {
  return message_text(record) + (record.failed() ? explain_kill(record) : "") +
         describe_circumstances(record) + end_of_log(record);
}

std::string describe_failure(const ProcessFailure& record) {
  if (record.hung) return "made no progress (--heartbeat-timeout)";
  if (record.pid == 0) return "could not be started";
  return record.failed() ? describe_exit(*record.status) : "reported an error, and then was stopped";
}

/// "rank 2 (local rank 2, pid 102, prog) exited with code 1: ValueError: x".
std::string summarize(const ProcessFailure& failure) {
  const std::string first_line =
      shorten_text(failure.message.substr(0, failure.message.find('\n')), kLongestHeadline);
  return quote_text(
      name_rank(failure) + describe_failure(failure) + (failure.message.empty() ? "" : ": ") + first_line,
      "");
}

/// Groups of ranks that share a line, in the order of the report.
enum class Fate { failed, failed_alike, lost_another, stopped, succeeded };

std::string line_of(Fate fate, std::string how, const std::vector<int>& ranks) {
  const bool several = ranks.size() > 1;
  if (several && how.starts_with("was ")) how.replace(0, 4, "were ");
  const char* after_stop = several ? " after they were asked to stop" : " after it was asked to stop";
  const char* as_well = fate == Fate::failed_alike ? " with the same error" : " as well";
  const char* end = fate == Fate::succeeded ? "" : fate == Fate::stopped ? after_stop : as_well;
  return fmt::format("lockstep run: {} {}{}\n", rank_list(ranks), how, end);
}

/// The report on all ranks except the cause, in as few lines as possible.
std::string report_other_ranks(const std::vector<ProcessFailure>& failures, std::size_t cause) {
  std::string text;
  std::map<std::pair<Fate, std::string>, std::vector<int>> together;
  int shown = 0;
  bool shows_secondary = false;
  for (std::size_t i = 0; i < failures.size(); ++i) {
    if (i == cause) continue;
    const ProcessFailure& failure = failures[i];
    const std::string head = "lockstep run: " + name_rank(failure);
    const std::string how = failure.status ? describe_exit(*failure.status) : "";
    if (!failure.status) {
      text += head + "did not exit after SIGKILL: look at its state with ps\n";
    } else if (!failure.failed()) {
      together[{failure.stopped ? Fate::stopped : Fate::succeeded, how}].push_back(failure.rank);
    } else if (!failure.message.empty() && failure.message == failures[cause].message) {
      together[{Fate::failed_alike, how}].push_back(failure.rank);
    } else if (failure.is_secondary && shows_secondary) {
      together[{Fate::lost_another, "lost another rank"}].push_back(failure.rank);
    } else if (shown++ < kMostDetailed) {
      shows_secondary = shows_secondary || failure.is_secondary;
      text += head + how + "\n" + describe_details(failure);
    } else {
      together[{Fate::failed, how}].push_back(failure.rank);
    }
  }
  for (const auto& [fate, ranks] : together) text += line_of(fate.first, fate.second, ranks);
  return text;
}

}  // namespace

std::size_t root_cause(const std::vector<ProcessFailure>& failures) {
  const Weight first = weight_of(failures.front());
  if (first >= Weight::own_error) return 0;
  // The first of those with the largest weight.
  const auto heaviest = std::ranges::max_element(failures, {}, weight_of);
  // Whoever lost a rank is a victim. A rank that ended without a message may be one, too.
  const Weight needed = first == Weight::silent ? Weight::crash : Weight::silent;
  return weight_of(*heaviest) >= needed ? static_cast<std::size_t>(heaviest - failures.begin()) : 0;
}

std::string failure_report(const std::vector<ProcessFailure>& failures, std::size_t cause) {
  const ProcessFailure& root = failures[cause];
  std::string text = fmt::format("lockstep run: FAILED: {}{}\n{}", name_rank(root), describe_failure(root),
                                 describe_details(root));
  if (failures.size() == 1) return text;
  return text + report_other_ranks(failures, cause) + "lockstep run: root cause: " + summarize(root);
}

FailureSummary analyze_failures(const std::vector<ProcessFailure>& records) {
  if (records.empty()) return {};
  const std::size_t index = root_cause(records);
  const ProcessFailure& cause = records[index];
  // A cause that was stopped before it ended by itself has no exit code of its own.
  const ProcessFailure& ended = cause.failed() ? cause : records.front();
  return {.report = failure_report(records, index),
          .headline = "lockstep run: FAILED: " + summarize(cause),
          .exit_code = ended.hung     ? kHangStatus
                       : ended.status ? exit_code_of(*ended.status)
                                      : 1,
          .preempted = std::ranges::all_of(records, saved_or_succeeded),
          .has_own_cause = has_own_cause(cause),
          .error = cause.error};
}

}  // namespace lockstep::launch
