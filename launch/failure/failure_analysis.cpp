#include "failure/failure_analysis.hpp"

#include <sys/wait.h>

#include <algorithm>

#include "failure/failure_report.hpp"
#include "failure/process_failure.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"

namespace lockstep::launch {
namespace {

using Json = nlohmann::json;

/// The exit status of a job that was ended because it hung: that of timeout(1).
constexpr int kHangStatus = 124;

std::vector<ProcessFailure> readable(const std::vector<Json>& jsons) {
  std::vector<ProcessFailure> records;
  for (const auto& json : jsons) {
    try {
      records.push_back(read_process_failure(json));
    } catch (const DataError&) {
      continue;
    }
  }
  return records;
}

bool saved_or_succeeded(const ProcessFailure& record) {
  return record.status == 0 || record.status == kPreemptedExitCode << 8;
}

/// A rank that only ended with some code, and left no word, may as well have lost a partner.
bool has_own_cause(const ProcessFailure& record) {
  const bool crashed = record.failed() && WIFSIGNALED(*record.status);
  return crashed || (!record.message.empty() && !record.is_secondary());
}

}  // namespace

FailureSummary analyze_failures(const std::vector<Json>& jsons) {
  const auto records = readable(jsons);
  FailureSummary summary;
  if (records.empty()) return summary;
  const std::size_t index = root_cause(records);
  const ProcessFailure& cause = records[index];
  // A cause that was stopped before it could end by itself has no exit code of its own.
  const ProcessFailure& ended = cause.failed() ? cause : records.front();
  summary.report = failure_report(records, index);
  summary.exit_code = ended.hung ? kHangStatus : ended.status ? exit_code_of(*ended.status) : 1;
  summary.has_own_cause = has_own_cause(cause);
  summary.preempted = std::all_of(records.begin(), records.end(), saved_or_succeeded);
  summary.error = cause.error;
  return summary;
}

}  // namespace lockstep::launch
