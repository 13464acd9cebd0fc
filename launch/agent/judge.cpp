#include "agent/judge.hpp"

#include <sys/wait.h>

#include <algorithm>

#include "agent/round.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "report/failure_record.hpp"
#include "report/failure_report.hpp"

namespace lockstep::launch {
namespace {

/// The exit status of a job that was ended because it stood still: that of timeout(1).
constexpr int kStandstillStatus = 124;

std::vector<FailureRecord> readable(const std::vector<Json>& jsons) {
  std::vector<FailureRecord> records;
  for (const auto& json : jsons) {
    try {
      records.push_back(read_failure_record(json));
    } catch (const DataError&) {
      continue;
    }
  }
  return records;
}

bool saved_or_succeeded(const FailureRecord& record) {
  return record.status == 0 || record.status == kPreemptedExitCode << 8;
}

/// A rank that only ended with some code, and left no word, may as well have lost a partner.
bool has_own_cause(const FailureRecord& record) {
  const bool crashed = record.failed() && WIFSIGNALED(*record.status);
  return crashed || (!record.message.empty() && !record.blames_another());
}

}  // namespace

Verdict judge_records(const std::vector<Json>& jsons) {
  const auto records = readable(jsons);
  Verdict verdict;
  if (records.empty()) return verdict;
  const std::size_t index = root_cause(records);
  const FailureRecord& cause = records[index];
  // A cause that was stopped before it could end by itself has no exit code of its own.
  const FailureRecord& ended = cause.failed() ? cause : records.front();
  verdict.report = failure_report(records, index);
  verdict.exit_code = ended.stood_still ? kStandstillStatus : ended.status ? exit_code_of(*ended.status) : 1;
  verdict.has_own_cause = has_own_cause(cause);
  verdict.preempted = std::all_of(records.begin(), records.end(), saved_or_succeeded);
  verdict.error = cause.error;
  return verdict;
}

}  // namespace lockstep::launch
