#pragma once

#include <sys/eventfd.h>

#include <cerrno>

#include "core/file_descriptor.hpp"

namespace lockstep::net {

using lockstep::FileDescriptor;

/// An event that one thread raises and another polls for; none, with errno, where the system refuses.
inline FileDescriptor open_event() noexcept { return FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

inline void raise_event(const FileDescriptor& event) noexcept {
  file_system::uninterrupted([&] { return eventfd_write(event.get(), 1); });
}

/// Whether it had been raised.
inline bool clear_event(const FileDescriptor& event) noexcept {
  eventfd_t count = 0;
  return file_system::uninterrupted([&] { return eventfd_read(event.get(), &count); }) == 0;
}

/// Whether errno says that a call on a non-blocking descriptor is to be made again later.
inline bool would_block() noexcept { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace lockstep::net
