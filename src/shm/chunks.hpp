#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "shm/layout.hpp"

namespace lockstep::shm {

/// A range cut into equal pieces, the last one shorter. At least one piece, so that nothing is a step as
/// well.
struct Chunks {
  std::size_t total;
  std::size_t each;

  std::size_t count() const { return std::max<std::size_t>(1, (total + each - 1) / each); }
  std::size_t start(std::size_t i) const { return std::min(total, i * each); }
  std::size_t length(std::size_t i) const { return std::min(each, total - start(i)); }
};

/// How many elements of `element_bytes` fit into a `parts`-th of a staging area, in whole cache lines.
inline std::size_t elements_per_part(std::size_t staging_bytes, int parts, std::size_t element_bytes) {
  const std::size_t bytes = staging_bytes / static_cast<std::size_t>(parts) / kLine * kLine;
  return std::max<std::size_t>(1, bytes / element_bytes);
}

inline std::byte* at(void* data, std::size_t byte) { return static_cast<std::byte*>(data) + byte; }
inline const std::byte* at(const void* data, std::size_t byte) {
  return static_cast<const std::byte*>(data) + byte;
}

/// Between buffers that may be one and the same; nothing may be copied between null pointers.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memmove(to, from, bytes);
}

}  // namespace lockstep::shm
