#include <fmt/core.h>
#include <unistd.h>
#include <iostream>
#include <utility>

#include "core/parallel_for.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "train/state/checkpoint_writer.hpp"

namespace lockstep::train {

CheckpointWriter::~CheckpointWriter() {
  try {
    wait();
  } catch (const std::exception& error) {
    std::cerr << std::string("lockstep: the last checkpoint was not written: ") + error.what() + "\n"
              << std::flush;
  }
}

void CheckpointWriter::start(std::function<void()> write) {
  wait();
  thread_ = std::thread([this, write = std::move(write)] {
    try {
      write();
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) thread_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

FileDigests ParallelFileWriter::run(const std::filesystem::path& folder, int threads) const {
  std::vector<FileDigest> digests(jobs_.size());
  parallel_for(jobs_.size(), 1, static_cast<std::size_t>(threads),
               [&](std::size_t i, std::size_t) { digests[i] = jobs_[i].second(folder / jobs_[i].first); });
  FileDigests known;
  for (std::size_t i = 0; i < jobs_.size(); ++i) known[jobs_[i].first] = digests[i];
  return known;
}

namespace {

namespace fs = std::filesystem;

/// A unique name. If the file is left behind, a later start removes it.
std::string probe_name() {
  static int counter = 0;
  return fmt::format(".lockstep-probe-{}-{}.tmp", ::getpid(), counter++);
}

}  // namespace

bool writes_for_its_node(const Accelerator& accelerator, const fs::path& folder) {
  const fs::path place = folder.empty() ? "." : folder;
  const std::string name = accelerator.on_main_process([&] {
    fs::create_directories(place);
    const std::string probe = probe_name();
    AtomicFile(place / probe).commit();
    return probe;
  });
  const bool sees_it = fs::exists(place / name);
  accelerator.wait_for_everyone();
  std::error_code ignored;
  if (accelerator.is_main_process()) fs::remove(place / name, ignored);
  return accelerator.is_main_process() || (accelerator.is_local_main_process() && !sees_it);
}

void run_on_writers(const Accelerator& accelerator, bool takes_part, const std::function<void()>& action) {
  std::exception_ptr own;
  std::string failure;
  try {
    if (takes_part) action();
  } catch (const std::exception& error) {
    own = std::current_exception();
    failure = error.what();
  }
  const auto failures = accelerator.process_group().all_gather_object(failure);
  if (own) std::rethrow_exception(own);
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank].empty()) continue;
    throw RemoteError(fmt::format("rank {} could not write: {}", rank, failures[rank]),
                      static_cast<int>(rank));
  }
}

}  // namespace lockstep::train
