#include "checkpoint_writer.hpp"

#include <iostream>
#include <utility>

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

}  // namespace lockstep::train
