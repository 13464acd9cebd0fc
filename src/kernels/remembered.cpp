#include "kernels/remembered.hpp"

#include <atomic>

namespace lockstep::kernels {
namespace {

std::atomic<std::uint64_t> answers{1};

}  // namespace

std::uint64_t answers_version() noexcept { return answers; }
void forget_answers() noexcept { ++answers; }

}  // namespace lockstep::kernels
