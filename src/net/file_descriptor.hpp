#pragma once

#include <sys/eventfd.h>

#include <cerrno>

#include "core/file_descriptor.hpp"

namespace lockstep::net {

using lockstep::FileDescriptor;

/// An event that one thread raises and another polls for; no descriptor, with errno set, if the system
/// refuses.
inline FileDescriptor open_event() noexcept { return FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

inline void raise_event(const FileDescriptor& event) noexcept {
  file_system::uninterrupted([&] { return eventfd_write(event.get(), 1); });
}

/// Returns whether it was raised.
inline bool clear_event(const FileDescriptor& event) noexcept {
  eventfd_t count = 0;
  return file_system::uninterrupted([&] { return eventfd_read(event.get(), &count); }) == 0;
}

/// Whether errno means that a call on a non-blocking descriptor must be retried later.
inline bool would_block() noexcept { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace lockstep::net
