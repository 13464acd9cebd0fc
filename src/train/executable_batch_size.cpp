#include "lockstep/train/executable_batch_size.hpp"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <fmt/core.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

constexpr const char* kFitted = "fitted";
constexpr const char* kTooLarge = "too large";
/// Another rank was lost during a collective.
constexpr const char* kAlone = "alone";

/// LibTorch's CPU allocator has no exception type of its own.
bool is_out_of_memory(const c10::Error& error) {
  const std::string_view text = error.what_without_backtrace();
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         text.find("can't allocate memory") != std::string_view::npos ||
         text.find("not enough memory") != std::string_view::npos;
}

/// Outcome of an attempt on this rank: kFitted, kTooLarge, or the text of another exception, which is stored
/// in `other`.
std::string attempt(const std::function<void(std::int64_t)>& action, std::int64_t size,
                    std::exception_ptr& other) {
  try {
    action(size);
    return kFitted;
  } catch (const std::bad_alloc&) {
    return kTooLarge;
  } catch (const CommunicationError&) {
    other = std::current_exception();
    return kAlone;
  } catch (const c10::Error& error) {
    if (is_out_of_memory(error)) return kTooLarge;
    other = std::current_exception();
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    other = std::current_exception();
    return error.what();
  }
}

/// Whether the batch was too large for any rank. Throws if an attempt failed for another reason.
bool was_too_large(const std::vector<std::string>& outcomes, const std::string& outcome,
                   const std::exception_ptr& own) {
  if (own && outcome != kAlone) std::rethrow_exception(own);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank] == kFitted || outcomes[rank] == kTooLarge || outcomes[rank] == kAlone) continue;
    throw RemoteError(fmt::format("find_executable_batch_size: rank {} failed: {}", rank, outcomes[rank]),
                      static_cast<int>(rank));
  }
  const auto has = [&](const char* wanted) {
    return std::find(outcomes.begin(), outcomes.end(), wanted) != outcomes.end();
  };
  if (has(kTooLarge)) return true;
  if (own) std::rethrow_exception(own);
  if (has(kAlone)) throw CommunicationError("find_executable_batch_size: another rank lost its peers");
  return false;
}

/// Cached blocks of the failed attempt's sizes would leave less memory for the next one.
void empty_cache(const at::Device& device) {
  if (!device.is_cpu()) c10::getDeviceAllocator(device.type())->emptyCache();
}

}  // namespace

std::int64_t find_executable_batch_size(const Accelerator& accelerator, std::int64_t start,
                                        const std::function<void(std::int64_t)>& action) {
  if (start < 1) throw UsageError("find_executable_batch_size: the first size must be at least 1.");
  for (std::int64_t size = start; size > 0; size = size * 9 / 10) {
    std::exception_ptr other;
    const std::string outcome = attempt(action, size, other);
    if (!was_too_large(accelerator.process_group().all_gather_object(outcome), outcome, other)) return size;
    empty_cache(accelerator.device());
  }
  throw Error("find_executable_batch_size: not even one sample fits into memory on every rank.");
}

std::int64_t find_executable_batch_size(const Accelerator& accelerator, std::int64_t start,
                                        const std::function<void(Accelerator&, std::int64_t)>& action) {
  std::vector<int> ranks(static_cast<std::size_t>(accelerator.num_processes()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return find_executable_batch_size(accelerator, start, [&](std::int64_t size) {
    Accelerator attempt(accelerator.world(), *accelerator.process_group().new_group(ranks),
                        accelerator.options());
    action(attempt, size);
  });
}

}  // namespace lockstep
