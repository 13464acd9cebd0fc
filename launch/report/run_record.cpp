#include "report/run_record.hpp"

namespace lockstep::launch {

const std::vector<LoggedPoint>& RunRecord::points_of(std::string_view of) const {
  static const std::vector<LoggedPoint> none;
  const auto found = series.find(of);
  return found == series.end() ? none : found->second.points;
}

}  // namespace lockstep::launch
