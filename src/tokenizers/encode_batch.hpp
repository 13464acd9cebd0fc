#pragma once

#include <cstddef>
#include <functional>

namespace lockstep::tokenizer {

/// Calls `work` with ranges that cover the numbers below `count`, from `threads` threads (0: one on each
/// core), this one among them. Throws what the first range threw that threw; every range before it has been
/// worked on.
void parallel_for(std::size_t count, int threads,
                  const std::function<void(std::size_t begin, std::size_t end)>& work);

/// Calls `work`; an error in it gets the number of the input put before its text.
void at_input(std::size_t number, const std::function<void()>& work);

}  // namespace lockstep::tokenizer
