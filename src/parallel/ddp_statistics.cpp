#include "lockstep/parallel/ddp_statistics.hpp"

#include <iomanip>
#include <sstream>

namespace lockstep {

std::string DdpStatistics::to_text() const {
  constexpr double kMiB = 1024.0 * 1024.0;
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << steps << " steps, " << parameters << " parameters, "
       << static_cast<double>(gradient_bytes) / kMiB << " MiB of gradients in " << bucket_bytes.size()
       << (bucket_bytes.size() == 1 ? " bucket" : " buckets")
       << (buckets_rebuilt ? ", in order of arrival" : "") << "\nof a step: forward " << forward
       << " ms, backward " << backward_compute << " ms, communication " << communication
       << " ms, of which hidden " << hidden << " ms (" << std::setprecision(0) << 100 * hidden_share()
       << " %)\n"
       << std::setprecision(2) << "computing " << compute << " ms a step\n";
  for (std::size_t rank = 0; rank < relative_scores.size(); ++rank) {
    text << (rank == 0 ? "relative scores of the ranks: " : ", ") << relative_scores[rank];
  }
  if (!relative_scores.empty()) text << '\n';
  return text.str();
}

}  // namespace lockstep
