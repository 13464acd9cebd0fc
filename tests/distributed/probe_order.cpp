#include <torch/nn/modules/linear.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "lockstep/core/error.hpp"
#include "probe.hpp"

namespace probe {
namespace {

void append(const std::string& path, int rank) { std::ofstream(path, std::ios::app) << rank << std::endl; }

void await_file(const std::string& path) {
  for (int i = 0; i < 4000; ++i) {
    if (std::filesystem::exists(path)) return;
    std::this_thread::sleep_for(milliseconds(10));
  }
  throw lockstep::Error(path + " did not appear");
}

}  // namespace

/// Every rank adds its number to the file, the main process late.
int order(const Words& words) {
  const auto accelerator = join();
  const auto guard = accelerator.main_process_first();
  if (accelerator.is_main_process()) std::this_thread::sleep_for(milliseconds(200));
  append(argument(words, 0), accelerator.process_index());
  return 0;
}

/// The first node's main process stays in its scope until the last of all ranks has left its own.
int local_order(const Words& words) {
  const std::string done = argument(words, 0) + ".done";
  const auto accelerator = join();
  const auto guard = accelerator.local_main_process_first();
  if (accelerator.is_main_process()) await_file(done);
  append(argument(words, 0), accelerator.process_index());
  if (accelerator.is_last_process()) std::ofstream(done).flush();
  return 0;
}

int slow_main(const Words&) {
  const auto accelerator = join(std::chrono::seconds(1));
  accelerator.on_main_process([] { std::this_thread::sleep_for(std::chrono::seconds(2)); });
  return 0;
}

int main_throws(const Words&) {
  const auto accelerator = join();
  accelerator.main_process_first([&] {
    if (accelerator.is_main_process()) throw lockstep::DataError("digits.bin is cut off");
  });
  return 0;
}

int guard_throws(const Words&) {
  const auto accelerator = join();
  try {
    const auto guard = accelerator.main_process_first();
    if (accelerator.is_main_process()) throw lockstep::DataError("digits.bin is cut off");
  } catch (const lockstep::RemoteError& error) {
    std::cout << "rank " + std::to_string(accelerator.process_index()) + " heard of rank " +
                     std::to_string(error.rank()) + "\n";
    throw;
  }
  return 0;
}

/// Ends right after save_model, like a short program.
int save(const Words& words) {
  const auto accelerator = join();
  const torch::nn::Linear model(3, 2);
  accelerator.save_model(model, argument(words, 0));
  return 0;
}

}  // namespace probe
