#include "report/failure_report.hpp"

#include <sys/wait.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace lockstep::launch {
namespace {

using Json = nlohmann::json;

/// More than this is no message but a dump.
constexpr std::size_t kLongestMessage = 4096;
constexpr std::streamsize kLongestFile = 1 << 20;

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

std::string named(const Worker& worker, const std::string& program) {
  const std::string rank = std::to_string(worker.local_rank);
  return "rank " + rank + " (local rank " + rank + ", pid " + std::to_string(worker.pid) + ", " + program +
         ") ";
}

std::string advice(int wait_status, const CauseDetails& details) {
  if (!WIFSIGNALED(wait_status) || WTERMSIG(wait_status) != SIGKILL) return "";
  if (details.out_of_memory_kills == 0) {
    return "  Nobody here sent it: maybe the out-of-memory killer (see dmesg, or the memory limit of the "
           "job).\n";
  }
  return "  The kernel ended " + std::to_string(details.out_of_memory_kills) +
         " process(es) of this job for want of memory: start fewer ranks, use smaller batches, or raise the "
         "memory "
         "limit of the job.\n";
}

std::string end_of_log(const CauseDetails& details) {
  if (details.last_lines.empty()) return "";
  return "  The end of " + details.log_file + ":\n" + quoted(details.last_lines, "    ");
}

std::string other_line(const Worker& worker, const std::string& program) {
  if (!worker.status)
    return named(worker, program) + "did not end, even after SIGKILL: look at its state with ps";
  const std::string how = describe_exit(*worker.status);
  return named(worker, program) + how + (worker.stopped ? " after it was told to stop" : "");
}

/// Whether a rank's message is of the kind that says: I fail because of another one. The words are those of
/// run_program.
bool blames_another(const std::string& message) {
  return message.starts_with("RemoteError: ") || message.starts_with("CommunicationError: ") ||
         message.starts_with("TimeoutError: ");
}

std::string how_it_failed(const Worker& worker) {
  return worker.failed() ? describe_exit(*worker.status) : "reported an error, and then was told to stop";
}

}  // namespace

std::size_t root_cause(const std::vector<Worker>& workers, std::size_t first,
                       const std::vector<std::string>& messages) {
  if (!blames_another(messages[first])) return first;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (!messages[i].empty() && !blames_another(messages[i])) return i;
  }
  return first;
}

int exit_code_of(int wait_status) noexcept {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string describe_exit(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return "exited with code " + std::to_string(WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  return "was killed by " + signal_name(number) + " (" + strsignal(number) + ")";
}

std::string error_message(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(kLongestFile), '\0');
  file.read(text.data(), kLongestFile);
  text.resize(static_cast<std::size_t>(file.gcount()));
  const Json json = Json::parse(text, nullptr, false);
  return message_of(json);
}

std::string failure_report(const std::vector<Worker>& workers, std::size_t first, const std::string& program,
                           const std::vector<std::string>& messages, const CauseDetails& details) {
  const Worker& root = workers[first];
  std::string text = "lockstep run: FAILED: " + named(root, program) + how_it_failed(root) + "\n";
  text += messages[first].empty() ? "" : quoted(messages[first]);
  if (root.failed()) text += advice(*root.status, details);
  text += end_of_log(details);
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (i == first) continue;
    text += "lockstep run: " + other_line(workers[i], program) + "\n";
    if (workers[i].failed() && !messages[i].empty()) text += quoted(messages[i]);
  }
  return text;
}

}  // namespace lockstep::launch
