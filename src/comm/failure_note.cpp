#include "failure_note.hpp"

#include <exception>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace lockstep::comm {
namespace {

constexpr std::chrono::seconds kAnswer{3};
constexpr const char* kKey = "first";

}  // namespace

FailureNote::FailureNote(const Store& store) : store_(store.clone()) {
  store_.c10d_store()->setTimeout(kAnswer);
}

void FailureNote::post(const std::string& words) const noexcept {
  try {
    store_.set_if_absent(kKey, words);
  } catch (const std::exception&) {
    // The store is gone, or cannot be reached: so it is for those who would read.
  }
}

std::string FailureNote::read(std::chrono::milliseconds patience) const noexcept {
  try {
    if (store_.wait(kKey, patience)) return store_.get(kKey, kAnswer);
  } catch (const std::exception&) {
    // Then nobody could leave word.
  }
  return "";
}

}  // namespace lockstep::comm
