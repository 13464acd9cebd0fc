#include "process/job_tag.hpp"

#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>

#include "process/orphan_reaper.hpp"
#include "process/process_facts.hpp"
#include "process/process_handle.hpp"
#include "process/temporary_folder.hpp"

namespace lockstep::launch {
namespace {

constexpr const char* kVariable = "LOCKSTEP_LAUNCHERS";

/// Whether the variable of that process has the word. Another user's environment cannot be read.
bool has_word(pid_t process, const std::string& word) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string name = std::string(kVariable) + "=";
  const auto begin = text.starts_with(name) ? 0 : text.find('\0' + name);
  if (begin == std::string::npos) return false;
  return text.substr(begin, text.find('\0', begin + 1) - begin).find(word) != std::string::npos;
}

/// An orphan reaper of a launcher within a rank ends by itself, when it has done what it is there for.
bool is_orphan_reaper(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/comm");
  std::string name;
  std::getline(file, name);
  return name == kOrphanReaperName;
}

/// Whether it was one of those. Its handle is held meanwhile, so that the process that was looked at is the
/// one that gets the signal.
bool kill_if_tagged(pid_t process, const std::string& word) {
  const ProcessHandle handle(process);
  return has_word(process, word) && !is_orphan_reaper(process) && handle.signal(SIGKILL);
}

}  // namespace

JobTag::JobTag(const Environment& environment) : word_(random_id(16)) {
  const std::string outer = find_variable(environment, kVariable).value_or("");
  all_ = (outer.empty() ? "" : outer + ":") + word_;
}

void JobTag::add_to(Environment& environment) const { environment[kVariable] = all_; }

void kill_tagged(const std::string& word, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const timespec pause{0, 5'000'000};
  for (bool found = true; found && std::chrono::steady_clock::now() < deadline;) {
    found = false;
    for (const pid_t process : all_processes()) {
      if (process != getpid() && kill_if_tagged(process, word)) found = true;
    }
    if (found) nanosleep(&pause, nullptr);
  }
}

}  // namespace lockstep::launch
