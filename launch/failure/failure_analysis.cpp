#include "failure/failure_analysis.hpp"

#include <sys/wait.h>

#include <algorithm>

#include "failure/failure_report.hpp"
#include "failure/process_failure.hpp"
#include "lockstep/core/runtime/program.hpp"

namespace lockstep::launch {
namespace {

/// The exit status of a job that was ended because it hung: that of timeout(1).
constexpr int kHangStatus = 124;

bool saved_or_succeeded(const ProcessFailure& record) {
  return record.status == 0 || record.status == kPreemptedExitCode << 8;
}

/// How likely a failure is the cause of others, least first.
enum class Weight { secondary, without_a_word, own_error, crash };

Weight weight_of(const ProcessFailure& failure) {
  if (failure.hung || failure.killed_by_oom()) return Weight::crash;
  if (failure.is_secondary) return Weight::secondary;
  if (failure.crashed()) return Weight::crash;
  return failure.message.empty() ? Weight::without_a_word : Weight::own_error;
}

/// A rank that only ended with some code, and left no word, may as well have lost a partner.
bool has_own_cause(const ProcessFailure& failure) {
  const bool crashed = failure.failed() && failure.status && WIFSIGNALED(*failure.status);
  return crashed || weight_of(failure) >= Weight::own_error;
}

}  // namespace

std::size_t root_cause(const std::vector<ProcessFailure>& failures) {
  const Weight first = weight_of(failures.front());
  if (first >= Weight::own_error) return 0;
  const auto lighter = [](const ProcessFailure& one, const ProcessFailure& other) {
    return weight_of(one) < weight_of(other);
  };
  // The first of several that weigh the same.
  const auto heaviest = std::max_element(failures.begin(), failures.end(), lighter);
  const Weight needed = first == Weight::secondary ? Weight::own_error : Weight::crash;
  return weight_of(*heaviest) >= needed ? static_cast<std::size_t>(heaviest - failures.begin()) : 0;
}

FailureSummary analyze_failures(const std::vector<ProcessFailure>& records) {
  FailureSummary summary;
  if (records.empty()) return summary;
  const std::size_t index = root_cause(records);
  const ProcessFailure& cause = records[index];
  // A cause that was stopped before it could end by itself has no exit code of its own.
  const ProcessFailure& ended = cause.failed() ? cause : records.front();
  summary.report = failure_report(records, index);
  summary.headline = failure_headline(cause);
  summary.exit_code = ended.hung ? kHangStatus : ended.status ? exit_code_of(*ended.status) : 1;
  summary.has_own_cause = has_own_cause(cause);
  summary.preempted = std::all_of(records.begin(), records.end(), saved_or_succeeded);
  summary.error = cause.error;
  return summary;
}

}  // namespace lockstep::launch
