#include "lockstep/train/main_process_first.hpp"

#include <chrono>
#include <exception>
#include <iostream>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kSlice = std::chrono::seconds(1);
constexpr int kSlicesBetweenMessages = 30;
constexpr char kDone[] = "done";

}  // namespace

MainProcessFirst::MainProcessFirst(const Store& store, std::string name, int rank, int main_rank)
    : store_(store), name_(std::move(name)), is_main_(rank == main_rank), exceptions_before_(std::uncaught_exceptions()) {
  if (!is_main_) wait_for_main(rank, main_rank);
}

MainProcessFirst::~MainProcessFirst() {
  if (!is_main_ || told_) return;
  try {
    if (std::uncaught_exceptions() > exceptions_before_) {
      fail("it left by an exception; see its own output");
    } else {
      store_.set(name_, kDone);
    }
  } catch (const std::exception& error) {
    // The others find the store gone as well, and say so themselves.
    std::cerr << "lockstep: the processes waiting in " << name_ << " could not be released: " << error.what() << '\n';
  }
}

void MainProcessFirst::fail(const std::string& text) {
  told_ = true;
  store_.set(name_, text);
}

void MainProcessFirst::wait_for_main(int rank, int main_rank) const {
  for (int slices = 1; !store_.wait(name_, kSlice); ++slices) {
    if (slices % kSlicesBetweenMessages != 0) continue;
    std::cerr << "lockstep [rank " + std::to_string(rank) + "]: waiting in " + name_ + " for rank " +
                     std::to_string(main_rank) + " since " + std::to_string(slices) + " s\n"
              << std::flush;
  }
  const std::string outcome = store_.get(name_, kSlice);
  if (outcome == kDone) return;
  throw RemoteError("rank " + std::to_string(rank) + " ends because rank " + std::to_string(main_rank) + " failed in " +
                        name_ + ": " + outcome,
                    main_rank);
}

}  // namespace lockstep
