#include "slurm/submit.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/core/error.hpp"
#include "net/file_descriptor.hpp"
#include "process/worker_process.hpp"

namespace lockstep::launch {
namespace {

/// A file in memory, for a pipe would block when sbatch does not read it.
net::FileDescriptor file_with(const std::string& text) {
  net::FileDescriptor file(memfd_create("batch script", MFD_CLOEXEC));
  if (!file || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      lseek(file.get(), 0, SEEK_SET) != 0) {
    throw Error(std::string("cannot hold the script in memory: ") + std::strerror(errno) + ".");
  }
  return file;
}

int status_of(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, 0) < 0) {
    if (errno != EINTR) throw Error(std::string("cannot wait for sbatch: ") + std::strerror(errno) + ".");
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int submit_script(const std::string& script, const Environment& environment) {
  const net::FileDescriptor file = file_with(script);
  const int input = file.get();
  SpawnedProcess sbatch({"sbatch", "--parsable"}, environment, [input] { dup2(input, STDIN_FILENO); });
  while (!sbatch.has_begun(SpawnedProcess::kExecTimeout)) continue;
  return status_of(sbatch.pid());
}

}  // namespace lockstep::launch
