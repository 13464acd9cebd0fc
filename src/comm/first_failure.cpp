#include "comm/first_failure.hpp"

#include <exception>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace lockstep::comm {
namespace {

constexpr std::chrono::seconds kAnswer{3};
constexpr const char* kKey = "words";
constexpr char kEnd = '\0';

const c10d::Store* innermost(const Store& store) {
  c10d::Store* const outer = store.c10d_store().get();
  auto* const prefix = dynamic_cast<c10d::PrefixStore*>(outer);
  return prefix == nullptr ? outer : prefix->getUnderlyingNonPrefixStore().get();
}

}  // namespace

Store bounded(const Store& store, std::chrono::milliseconds answer) {
  Store own = store.clone();
  if (innermost(own) != innermost(store)) own.c10d_store()->setTimeout(answer);
  return own;
}

FirstFailure::FirstFailure(const Store& store) : store_(bounded(store, kAnswer)) {}

void FirstFailure::post(const std::string& words) const noexcept {
  try {
    store_.append(kKey, words + kEnd);
  } catch (const std::exception&) {
    // The store is gone, or cannot be reached: so it is for those who would read.
  }
}

std::string FirstFailure::read(std::chrono::milliseconds patience) const noexcept {
  try {
    if (!store_.wait(kKey, patience)) return "";
    const std::string all = store_.get(kKey, kAnswer);
    return all.substr(0, all.find(kEnd));
  } catch (const std::exception&) {
    return "";  // Then nobody could leave word.
  }
}

}  // namespace lockstep::comm
