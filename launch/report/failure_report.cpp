#include "report/failure_report.hpp"

#include <sys/wait.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "process/signal_queue.hpp"
#include "report/error_file.hpp"

namespace lockstep::launch {
namespace {

using Json = nlohmann::json;

/// More than this is no message but a dump.
constexpr std::size_t kLongestMessage = 4096;

std::string message_of(const Json& json) {
  const Json* node = &json;
  for (int depth = 0; depth < 2 && node->is_object(); ++depth) {
    const auto found = node->find("message");
    if (found == node->end()) return "";
    node = &*found;
  }
  return node->is_string() ? node->get<std::string>() : "";
}

/// Indented, without the control characters that would act on a terminal.
std::string quoted(const std::string& message, const std::string& indent = "  ") {
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

std::string named(const FailureRecord& record) {
  return "rank " + std::to_string(record.rank) + " (" + (record.node.empty() ? "" : record.node + ", ") +
         "local rank " + std::to_string(record.local_rank) + ", pid " + std::to_string(record.pid) + ", " +
         record.program + ") ";
}

/// " (this one had 2.5 GiB)", or nothing where that is not known.
std::string memory_text(const FailureRecord& record) {
  if (record.peak_memory <= 0) return "";
  const auto tenths = (record.peak_memory * 10 + (1 << 29)) >> 30;
  const bool small = tenths < 10;
  const std::string number = small ? std::to_string(record.peak_memory >> 20)
                                   : std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
  return " (this one had " + number + (small ? " MiB)" : " GiB)");
}

std::string advice(const FailureRecord& record) {
  if (!record.status || record.stood_still) return "";
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

std::string end_of_log(const FailureRecord& record) {
  if (record.last_lines.empty()) return "";
  return "  The end of " + record.log_file + ":\n" + quoted(record.last_lines, "    ");
}

std::string other_line(const FailureRecord& record) {
  if (!record.status) return named(record) + "did not end, even after SIGKILL: look at its state with ps";
  return named(record) + describe_exit(*record.status) + (record.stopped ? " after it was told to stop" : "");
}

std::string how_it_failed(const FailureRecord& record) {
  if (record.stood_still) return "made no progress (--heartbeat-timeout)";
  return record.failed() ? describe_exit(*record.status) : "reported an error, and then was told to stop";
}

}  // namespace

std::size_t root_cause(const std::vector<FailureRecord>& records) {
  if (!records.front().blames_another()) return 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (!records[i].message.empty() && !records[i].blames_another()) return i;
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

std::string error_message(const std::string& path) { return message_of(error_content(path)); }

std::string failure_report(const std::vector<FailureRecord>& records, std::size_t cause) {
  const FailureRecord& root = records[cause];
  std::string text = "lockstep run: FAILED: " + named(root) + how_it_failed(root) + "\n";
  text += root.message.empty() ? "" : quoted(root.message);
  if (root.failed()) text += advice(root);
  text += end_of_log(root);
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (i == cause) continue;
    text += "lockstep run: " + other_line(records[i]) + "\n";
    if (records[i].failed() && !records[i].message.empty()) text += quoted(records[i].message);
  }
  return text;
}

}  // namespace lockstep::launch
