#include "encode_batch.hpp"

#include <algorithm>
#include <string>
#include <thread>

#include "core/parallel_for.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::tokenizer {
namespace {

/// Texts handed to a thread at a time: enough not to be felt, few enough for all threads to end together.
constexpr std::size_t kRange = 16;

std::size_t threads_for(std::size_t count, int threads) {
  const auto wanted = threads > 0 ? static_cast<std::size_t>(threads)
                                  : std::max<std::size_t>(1, std::thread::hardware_concurrency());
  return std::min(wanted, (count + kRange - 1) / kRange);
}

}  // namespace

void parallel_for(std::size_t count, int threads,
                  const std::function<void(std::size_t begin, std::size_t end)>& work) {
  if (threads < 0) {
    throw UsageError("EncodeOptions::threads must be 0 or more, not " + std::to_string(threads) + ".");
  }
  lockstep::parallel_for(count, kRange, threads_for(count, threads), work);
}

void at_input(std::size_t number, const std::function<void()>& work) {
  const auto place = [number] { return "input " + std::to_string(number) + " of the batch (from 0): "; };
  try {
    work();
  } catch (const DataError& error) {
    throw DataError(place() + error.what());
  } catch (const UsageError& error) {
    throw UsageError(place() + error.what());
  }
}

}  // namespace lockstep::tokenizer
