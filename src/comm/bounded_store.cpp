#include "comm/bounded_store.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace lockstep::comm {
namespace {

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

}  // namespace lockstep::comm
