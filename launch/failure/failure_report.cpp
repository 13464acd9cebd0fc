#include "failure/failure_report.hpp"

#include <sys/wait.h>

#include <array>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "failure/error_file.hpp"
#include "process/signal_fd.hpp"

namespace lockstep::launch {
namespace {

/// Ranks beside the cause of which more is shown than a line.
constexpr int kMostDetailed = 8;

/// More than this is no message but a dump.
constexpr std::size_t kLongestMessage = 4096;

/// Indented, without the control characters that would act on a terminal.
std::string quoted(std::string message, const std::string& indent = "  ") {
  while (message.ends_with('\n')) message.pop_back();
  std::string result = indent;
  for (const char letter : message.substr(0, kLongestMessage)) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '\n')
      result += "\n" + indent;
    else if (code >= ' ' || letter == '\t')
      result += letter;
  }
  return result + (message.size() > kLongestMessage ? " ..." : "") + "\n";
}

std::string named(const ProcessFailure& record) {
  return "rank " + std::to_string(record.rank) + " (" + (record.node.empty() ? "" : record.node + ", ") +
         "local rank " + std::to_string(record.local_rank) +
         (record.pid == 0 ? "" : ", pid " + std::to_string(record.pid)) + ", " + record.program + ") ";
}

/// " (this one had 2.5 GiB)", or nothing where that is not known.
std::string memory_text(const ProcessFailure& record) {
  if (record.peak_memory <= 0) return "";
  const auto tenths = (record.peak_memory * 10 + (1 << 29)) >> 30;
  const bool small = tenths < 10;
  const std::string number = small ? std::to_string(record.peak_memory >> 20)
                                   : std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
  return " (this one had " + number + (small ? " MiB)" : " GiB)");
}

std::string advice(const ProcessFailure& record) {
  if (!record.status || record.hung) return "";
  if (!WIFSIGNALED(*record.status) || WTERMSIG(*record.status) != SIGKILL) return "";
  if (record.out_of_memory_kills == 0) {
    return "  Nobody here sent it: maybe the out-of-memory killer (see dmesg, or the memory limit of the "
           "job).\n";
  }
  return "  The kernel ended " + std::to_string(record.out_of_memory_kills) +
         " process(es) of this job for want of memory" + memory_text(record) +
         ": start fewer ranks, use smaller batches, or raise the "
         "memory limit of the job.\n";
}

/// A traceback ends with the message in most cases.
std::string own_words(const ProcessFailure& record) {
  const std::string traceback = traceback_of(record.error);
  const bool repeated = traceback.find(record.message) != std::string::npos;
  std::string text = record.message.empty() || (repeated && !traceback.empty()) ? "" : quoted(record.message);
  if (!traceback.empty()) text += quoted(traceback);
  return text;
}

std::string time_text(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  if (localtime_r(&time, &parts) == nullptr) return "";
  std::array<char, 64> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts)};
}

/// "at 2026-01-31 12:00:00 on host a, error file /logs/error.json".
std::string circumstances(const ProcessFailure& record) {
  const std::int64_t own_time = time_of(record.error);
  const std::int64_t time = own_time != 0 ? own_time : record.time;
  std::string text = time == 0 ? "" : "at " + time_text(time);
  if (!record.host.empty()) text += (text.empty() ? "on host " : " on host ") + record.host;
  if (!record.error_file.empty())
    text += (text.empty() ? "error file " : ", error file ") + record.error_file;
  return text.empty() ? "" : quoted(text);
}

std::string end_of_log(const ProcessFailure& record) {
  if (record.last_lines.empty()) return "";
  const std::string what = record.log_file.empty() ? "its standard error" : record.log_file;
  return "  The end of " + what + ":\n" + quoted(record.last_lines, "    ");
}

std::string details(const ProcessFailure& record) {
  return own_words(record) + (record.failed() ? advice(record) : "") + circumstances(record) +
         end_of_log(record);
}

std::string other_line(const ProcessFailure& record) {
  if (!record.status) return named(record) + "did not end, even after SIGKILL: look at its state with ps";
  return named(record) + describe_exit(*record.status) + (record.stopped ? " after it was told to stop" : "");
}

std::string how_it_failed(const ProcessFailure& record) {
  if (record.hung) return "made no progress (--heartbeat-timeout)";
  if (record.pid == 0) return "could not be started";
  return record.failed() ? describe_exit(*record.status) : "reported an error, and then was told to stop";
}

}  // namespace

std::size_t root_cause(const std::vector<ProcessFailure>& records) {
  if (!records.front().is_secondary()) return 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (!records[i].message.empty() && !records[i].is_secondary()) return i;
  }
  return 0;
}

int exit_code_of(int wait_status) noexcept {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string describe_exit(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return "exited with code " + std::to_string(WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  return "was killed by " + signal_name(number) + " (" + strsignal(number) + ")";
}

std::string failure_report(const std::vector<ProcessFailure>& records, std::size_t cause) {
  const ProcessFailure& root = records[cause];
  std::string text = "lockstep run: FAILED: " + named(root) + how_it_failed(root) + "\n" + details(root);
  int detailed = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (i == cause) continue;
    text += "lockstep run: " + other_line(records[i]) + "\n";
    if (records[i].failed() && detailed++ < kMostDetailed) text += details(records[i]);
  }
  return text;
}

}  // namespace lockstep::launch
