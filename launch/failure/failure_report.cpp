#include "failure/failure_report.hpp"

#include <sys/wait.h>

#include <fmt/core.h>

#include <array>
#include <cstring>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/cpu_set.hpp"
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

std::string named(const ProcessFailure& failure) {
  return fmt::format("rank {} ({}local rank {}{}, {}) ", failure.rank,
                     failure.node.empty() ? "" : failure.node + ", ", failure.local_rank,
                     failure.pid == 0 ? "" : fmt::format(", pid {}", failure.pid), failure.program);
}

/// "; this one had 2.5 GiB", or nothing where that is not known.
std::string memory_text(const ProcessFailure& failure) {
  if (failure.peak_memory <= 0) return "";
  const auto tenths = (failure.peak_memory * 10 + (1 << 29)) >> 30;
  if (tenths < 10) return fmt::format("; this one had {} MiB", failure.peak_memory >> 20);
  return fmt::format("; this one had {}.{} GiB", tenths / 10, tenths % 10);
}

/// Who may have sent a SIGKILL that did not come from here.
std::string sender_of_kill(const ProcessFailure& failure) {
  if (!failure.status || failure.hung || failure.killed) return "";
  if (!WIFSIGNALED(*failure.status) || WTERMSIG(*failure.status) != SIGKILL) return "";
  if (failure.killed_by_oom()) {
    return fmt::format(
        "  killed by the kernel's OOM killer ({} process(es) of this job on this host{}): start fewer ranks, "
        "use "
        "smaller batches, or raise the memory limit of the job.\n",
        *failure.oom_kills, memory_text(failure));
  }
  if (failure.oom_kills) {
    return "  Nobody here sent it, and the kernel's OOM killer has killed no process of this job: somebody "
           "else "
           "did (kill -9, or the batch system).\n";
  }
  return "  Nobody here sent it. No cgroup tells whether the kernel's OOM killer did: see dmesg, or the "
         "memory "
         "limit of the job.\n";
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
  return own_words(record) + (record.failed() ? sender_of_kill(record) : "") + circumstances(record) +
         end_of_log(record);
}

std::string how_it_failed(const ProcessFailure& record) {
  if (record.hung) return "made no progress (--heartbeat-timeout)";
  if (record.pid == 0) return "could not be started";
  return record.failed() ? describe_exit(*record.status) : "reported an error, and then was told to stop";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// "rank 2 (local rank 2, pid 102, prog) exited with code 1: ValueError: x".
std::string in_one_line(const ProcessFailure& failure) {
  const std::string message = failure.message.empty() ? "" : ": " + first_line(failure.message);
  return quoted(named(failure) + how_it_failed(failure) + message, "");
}

/// "rank 0", "ranks 0, 2-31".
std::string rank_list(const std::vector<int>& ranks) {
  const std::set<int> numbers(ranks.begin(), ranks.end());
  std::string text = cpu_list_text(numbers);
  for (auto at = text.find(','); at != std::string::npos; at = text.find(',', at + 2))
    text.insert(at + 1, " ");
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

/// Ranks that ended alike, by how they did.
using Groups = std::map<std::string, std::vector<int>>;

std::string group_lines(const Groups& groups, const char* singular, const char* plural) {
  std::string text;
  for (const auto& [how, ranks] : groups) {
    std::string words = how;
    // "was killed" of one, "were killed" of several.
    if (ranks.size() > 1 && words.starts_with("was ")) words.replace(0, 4, "were ");
    text += fmt::format("lockstep run: {} {}{}\n", rank_list(ranks), words,
                        ranks.size() == 1 ? singular : plural);
  }
  return text;
}

/// Everything about the other ranks, in as few lines as it takes.
class OtherRanks {
 public:
  void add(const ProcessFailure& failure) {
    if (!failure.status) {
      detailed_ +=
          "lockstep run: " + named(failure) + "did not end, even after SIGKILL: look at its state with ps\n";
    } else if (!failure.failed()) {
      (failure.stopped ? obeyed_ : succeeded_)[describe_exit(*failure.status)].push_back(failure.rank);
    } else if (failure.is_secondary && has_secondary_) {
      secondary_.push_back(failure.rank);
    } else if (shown_++ < kMostDetailed) {
      has_secondary_ = has_secondary_ || failure.is_secondary;
      detailed_ +=
          "lockstep run: " + named(failure) + describe_exit(*failure.status) + "\n" + details(failure);
    } else {
      more_[describe_exit(*failure.status)].push_back(failure.rank);
    }
  }

  std::string text() const {
    std::string text = detailed_ + group_lines(more_, " as well", " as well");
    if (!secondary_.empty())
      text += fmt::format("lockstep run: {} lost another rank as well\n", rank_list(secondary_));
    return text + group_lines(obeyed_, " after it was told to stop", " after they were told to stop") +
           group_lines(succeeded_, "", "");
  }

 private:
  int shown_ = 0;
  /// One of them is in the details.
  bool has_secondary_ = false;
  std::string detailed_;
  std::vector<int> secondary_;
  Groups more_;
  Groups obeyed_;
  Groups succeeded_;
};

}  // namespace

int exit_code_of(int wait_status) noexcept {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string describe_exit(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return fmt::format("exited with code {}", WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  return fmt::format("was killed by {} ({})", signal_name(number), strsignal(number));
}

std::string failure_headline(const ProcessFailure& cause) {
  return "lockstep run: FAILED: " + in_one_line(cause);
}

std::string failure_report(const std::vector<ProcessFailure>& failures, std::size_t cause) {
  const ProcessFailure& root = failures[cause];
  std::string text = "lockstep run: FAILED: " + named(root) + how_it_failed(root) + "\n" + details(root);
  if (failures.size() == 1) return text;
  OtherRanks others;
  for (std::size_t i = 0; i < failures.size(); ++i) {
    if (i != cause) others.add(failures[i]);
  }
  return text + others.text() + "lockstep run: root cause: " + in_one_line(root);
}

}  // namespace lockstep::launch
