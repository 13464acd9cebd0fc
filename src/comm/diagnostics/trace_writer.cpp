#include "comm/diagnostics/trace_writer.hpp"

#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "comm/cuda/plugin.hpp"
#include "core/file_system.hpp"
#include "core/json_text.hpp"
#include "core/runtime/signal_free_thread.hpp"
#include "core/runtime/spent_time.hpp"
#include "core/runtime/stack_trace.hpp"
#include "lockstep/comm/trace.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kPollInterval{1};

/// The last seen state of the requests for a trace.
struct Requests {
  fs::file_time_type file;
  unsigned stacks = 0;

  explicit Requests(const fs::path& folder) : stacks(stack_requests()) {
    std::error_code absent;
    file = fs::last_write_time(folder / "request", absent);
    if (absent) file = fs::file_time_type::min();
  }
  bool operator==(const Requests&) const = default;
};

}  // namespace

TraceWriter::TraceWriter(std::shared_ptr<FlightRecorder> recorder, fs::path folder)
    : recorder_(std::move(recorder)), folder_(std::move(folder)) {
  if (folder_.empty()) return;
  name_run();
  thread_ = signal_free_thread([this] { serve(); });
}

/// Each rank writes the same, as the hosts of a job may have folders of their own. The traces of earlier runs
/// are not taken for this one's, even if this one writes none.
void TraceWriter::name_run() noexcept {
  try {
    file_system::make_folders(folder_);
    const nlohmann::json run = {{"run", recorder_->run()}, {"world_size", recorder_->world_size()}};
    write_atomically(folder_ / "trace-run.json", json_text(run) + "\n");
  } catch (const std::exception& error) {
    std::cerr << fmt::format("lockstep: rank {}: no traces can be written: {}\n", recorder_->rank(),
                             error.what())
              << std::flush;
  }
}

TraceWriter::~TraceWriter() {
  if (folder_.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
  write("the end of the group");
}

void TraceWriter::serve() noexcept {
  Requests seen(folder_);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kPollInterval, [&] { return stopping_; })) {
    const Requests now(folder_);
    if (now == seen) continue;
    seen = now;
    lock.unlock();
    write("a request");
    lock.lock();
  }
}

void TraceWriter::write(const std::string& reason) noexcept {
  if (folder_.empty()) return;
  const std::lock_guard lock(writing_);
  try {
    write_into(*recorder_, folder_, reason);
  } catch (const std::exception& error) {
    std::cerr << fmt::format("lockstep: rank {}: no trace was written: {}\n", recorder_->rank(), error.what())
              << std::flush;
  }
}

fs::path TraceWriter::write_into(const FlightRecorder& recorder, const fs::path& folder,
                                 const std::string& reason) {
  file_system::make_folders(folder);
  const fs::path path = folder / fmt::format("trace-rank-{}.json", recorder.rank());
  nlohmann::json all = recorder.dump(reason);
  // NCCL's operations are in c10d's own flight recorder.
  if (const CudaPlugin* const plugin = loaded_cuda_plugin())
    all["nccl"] = nlohmann::json::parse(plugin->nccl_flight_record());
  write_atomically(path, json_text_with_replacements(all));
  return path;
}

}  // namespace lockstep::comm

namespace lockstep::trace {

Range::Range(std::string name) : name_(std::move(name)), begin_(comm::monotonic_now()) {
  const comm::CudaPlugin* const plugin = comm::loaded_cuda_plugin();
  in_nvtx_ = plugin != nullptr;
  if (in_nvtx_) plugin->begin_range(name_.c_str());
  begin_part(this, name_);
}

Range::~Range() {
  end_part(this);
  if (in_nvtx_) comm::loaded_cuda_plugin()->end_range();
  comm::add_span({std::move(name_), begin_, comm::monotonic_now(), syscall(SYS_gettid)});
}

}  // namespace lockstep::trace
