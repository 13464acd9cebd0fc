#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench_options.hpp"
#include "measurement.hpp"

namespace bench {

/// The columns of nccl-tests.
std::string heading(const std::string& collective);
std::string line_of(const Measurement& measurement, const Options& options);

nlohmann::json json_of(const std::vector<Measurement>& all, const Options& options, int ranks);

}  // namespace bench
