#include "output/worker_output.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

net::FileDescriptor open_for_writing(const std::string& path) {
  net::FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file) throw Error("cannot write the log file '" + path + "': " + std::strerror(errno) + ".");
  return file;
}

net::FileDescriptor open_sink(Sink sink, const std::string& log_file, int console, const std::string& prefix,
                              OutputRelay& relay) {
  switch (sink) {
    case Sink::file:
      return open_for_writing(log_file);
    case Sink::nothing:
      return open_for_writing("/dev/null");
    case Sink::relay:
      return relay.open(console, prefix,
                        log_file.empty() ? net::FileDescriptor() : open_for_writing(log_file));
    case Sink::console:
      break;
  }
  return {};
}

}  // namespace

void WorkerOutput::apply() const noexcept {
  if (out) dup2(out.get(), STDOUT_FILENO);
  if (err) dup2(err.get(), STDERR_FILENO);
}

WorkerOutput open_output(const LaunchPlan& plan, const Attempt& attempt, int local_rank, OutputRelay& relay) {
  const RankOutput& sinks = plan.outputs[static_cast<std::size_t>(local_rank)];
  const auto folder = std::filesystem::path(error_file(attempt, local_rank)).parent_path();
  const auto log_file = [&](const char* name) {
    return plan.log_dir.empty() ? "" : (folder / name).string();
  };
  const std::string prefix = "[" + plan.role + std::to_string(local_rank) + "]: ";
  return {open_sink(sinks.out, log_file("stdout.log"), STDOUT_FILENO, prefix, relay),
          open_sink(sinks.err, log_file("stderr.log"), STDERR_FILENO, prefix, relay)};
}

}  // namespace lockstep::launch
