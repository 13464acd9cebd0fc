#pragma once

#include <gtest/gtest.h>

#include <string>

#include "lockstep/comm/cuda.hpp"

/// The first line of a test on a GPU: skips it where this process sees no driver. Where it sees one, a GPU
/// that cannot be used, as with a build without the CUDA library, is a failure.
#define LOCKSTEP_NEEDS_GPU()                                                                             \
  do {                                                                                                   \
    if (const std::string obstacle = ::lockstep::cuda_obstacle(); !obstacle.empty()) FAIL() << obstacle; \
    if (::lockstep::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";                          \
  } while (false)
