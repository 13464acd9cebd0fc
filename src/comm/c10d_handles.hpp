#pragma once

// c10d's objects count their references themselves (intrusive_ptr). The public headers use std::shared_ptr,
// because an intrusive pointer needs the complete type. These two functions convert between them.

#include <c10/util/intrusive_ptr.h>

#include <memory>

namespace lockstep::comm {

template <class T>
std::shared_ptr<T> to_shared(c10::intrusive_ptr<T> pointer) {
  T* raw = pointer.get();
  return std::shared_ptr<T>(raw, [held = std::move(pointer)](T*) mutable { held.reset(); });
}

template <class T>
c10::intrusive_ptr<T> to_intrusive(const std::shared_ptr<T>& pointer) {
  return c10::intrusive_ptr<T>::unsafe_reclaim_from_nonowning(pointer.get());
}

}  // namespace lockstep::comm
