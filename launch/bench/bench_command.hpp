#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

/// The words of `lockstep bench comm ...` as those of a `lockstep run` that starts lockstep-bench, which lies
/// beside the launcher: the benchmark's options go to it, all others are the run's. Throws UsageError.
std::vector<std::string> bench_words(const std::vector<std::string>& words);

/// Likewise the words of `lockstep test ...`, which starts lockstep-test: on two ranks of this host, unless
/// the words say otherwise.
std::vector<std::string> test_words(const std::vector<std::string>& words);

}  // namespace lockstep::launch
