#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// A folder for one test, removed with it.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  /// Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& text, bool executable = false) const;

 private:
  std::string path_;
};

/// How long tests wait for what takes a moment on a machine with nothing else to do.
inline constexpr std::chrono::seconds kUsualLimit{60};
/// The same for programs in Python, which import and compile for minutes on a loaded machine.
inline constexpr std::chrono::seconds kPythonLimit{240};

/// How a launcher ended.
struct Finished {
  /// Its exit code, or minus the number of the signal that killed it.
  int status = 0;
  std::string out;
  std::string err;
};

/// The real launcher, as a child of the test, with its output in files. Killed with the object.
class LauncherProcess {
 public:
  /// `variables` are laid over the test's environment; `in_child` runs before exec; `program` is another
  /// launcher.
  explicit LauncherProcess(const std::vector<std::string>& arguments, const Environment& variables = {},
                           const std::function<void()>& in_child = {},
                           const std::string& program = LOCKSTEP_LAUNCHER);
  ~LauncherProcess();
  LauncherProcess(const LauncherProcess&) = delete;
  LauncherProcess& operator=(const LauncherProcess&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// What it has written so far.
  std::string out() const;
  std::string err() const;
  /// Waits for its end; a test failure when it takes longer than `limit`.
  Finished wait(std::chrono::seconds limit = kUsualLimit);

 private:
  /// Asks it to end, which gives torchrun the time to end its ranks; kills it after 10 s.
  int end();

  ScratchFolder output_;
  pid_t pid_ = 0;
};

/// For `in_child`: pidfd_open fails from here on, as on kernels before 5.3. Async-signal-safe.
void forbid_pidfds();

/// Starts a launcher and waits for it.
Finished launch(const std::vector<std::string>& arguments, const Environment& variables = {});

/// Tries until it works; false when it did not within the limit.
bool eventually(const std::function<bool()>& works, std::chrono::seconds limit = kUsualLimit);

std::string read_file(const std::string& path);

/// The whole number that a process will write into the file, awaited; a test failure when none comes. The
/// writer renames the file into place, so that it is never seen half written.
pid_t await_number(const std::string& path, std::chrono::seconds limit = kUsualLimit);

/// Whether the process is gone, or a zombie.
bool is_gone(pid_t process);

/// The same, awaited for the usual limit.
bool await_end(pid_t process);

}  // namespace lockstep::launch
