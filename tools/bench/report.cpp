#include "report.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "collectives.hpp"

namespace bench {
namespace {

constexpr double kGiga = 1e9;

std::string op_of(const Measurement& measurement, const Options& options) {
  return reduces(measurement.collective) ? options.op : "none";
}

std::string type_of(const Measurement& measurement, const Options& options) {
  return has_size(measurement.collective) ? options.dtype : "none";
}

}  // namespace

std::string heading(const std::string& collective) {
  return "# " + collective +
         "\n#        size         count      type   redop        time   algbw   busbw  #wrong\n"
         "#         (B)    (elements)                          (us)  (GB/s)  (GB/s)\n";
}

std::string line_of(const Measurement& measurement, const Options& options) {
  char line[160];
  const std::string wrong = measurement.wrong < 0 ? "n/a" : std::to_string(measurement.wrong);
  std::snprintf(line, sizeof line, "%13lld %13lld %9s %7s %11.2f %7.2f %7.2f %7s\n",
                static_cast<long long>(measurement.bytes), static_cast<long long>(measurement.count),
                type_of(measurement, options).c_str(), op_of(measurement, options).c_str(),
                measurement.seconds * 1e6, measurement.algorithm_bandwidth / kGiga,
                measurement.bus_bandwidth / kGiga, wrong.c_str());
  return line;
}

nlohmann::json json_of(const std::vector<Measurement>& all, const Options& options, int ranks) {
  nlohmann::json results = nlohmann::json::array();
  for (const auto& measurement : all) {
    results.push_back({{"collective", measurement.collective},
                       {"size", measurement.bytes},
                       {"count", measurement.count},
                       {"type", type_of(measurement, options)},
                       {"redop", op_of(measurement, options)},
                       {"time_us", measurement.seconds * 1e6},
                       {"algbw_gb_s", measurement.algorithm_bandwidth / kGiga},
                       {"busbw_gb_s", measurement.bus_bandwidth / kGiga},
                       {"wrong", measurement.wrong}});
  }
  return {{"ranks", ranks}, {"backend", options.backend}, {"device", options.device}, {"results", results}};
}

}  // namespace bench
