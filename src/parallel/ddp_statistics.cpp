#include "lockstep/parallel/ddp_statistics.hpp"

#include <fmt/format.h>

namespace lockstep {

std::string DdpStatistics::to_text() const {
  constexpr double kMiB = 1024.0 * 1024.0;
  const std::string text = fmt::format(
      "{} steps, {} parameters, {:.2f} MiB of gradients in {} {}{}\n"
      "of a step: forward {:.2f} ms, backward {:.2f} ms, communication {:.2f} ms, of which hidden {:.2f} ms "
      "({:.0f} %)\n"
      "computing {:.2f} ms a step\n",
      steps, parameters, static_cast<double>(gradient_bytes) / kMiB, bucket_bytes.size(),
      bucket_bytes.size() == 1 ? "bucket" : "buckets", buckets_rebuilt ? ", in order of arrival" : "",
      forward, backward_compute, communication, hidden, 100 * hidden_share(), compute);
  if (relative_scores.empty()) return text;
  return fmt::format("{}relative scores of the ranks: {:.2f}\n", text, fmt::join(relative_scores, ", "));
}

}  // namespace lockstep
