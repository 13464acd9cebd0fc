#pragma once

#include <cstddef>
#include <functional>

namespace lockstep {

/// Calls `work` with ranges of at most `length` numbers that cover those below `count`, from `threads`
/// threads this one among them. Ranges are handed out in order. Throws what the first range threw that threw,
/// when all threads have ended; every range before it has been worked on, and none is begun after it.
void parallel_for(std::size_t count, std::size_t length, std::size_t threads,
                  const std::function<void(std::size_t begin, std::size_t end)>& work);

}  // namespace lockstep
