#include "bucket_plan.hpp"

#include <algorithm>
#include <limits>

namespace lockstep::parallel {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// Of the whole communication: what a plan may lose for the sake of fewer buckets.
constexpr double kTolerance = 0.05;
/// A limit for the time of planning, which grows with the third power of the number of pieces.
constexpr std::size_t kMostPieces = 256;

double seconds_of(std::size_t bytes, CommunicationCost cost) {
  return cost.seconds_per_call + static_cast<double>(bytes) * cost.seconds_per_byte;
}

std::size_t sum_of(const std::vector<GradientArrival>& arrivals) {
  std::size_t bytes = 0;
  for (const auto& arrival : arrivals) bytes += arrival.bytes;
  return bytes;
}

/// Gradients that stay together.
struct Piece {
  std::size_t gradients = 0;
  double seconds = 0;  // Of its last one.
  std::size_t bytes = 0;
};

/// Two that follow each other have more than `enough` bytes together.
std::vector<Piece> pieces_of(const std::vector<GradientArrival>& arrivals, std::size_t enough) {
  std::vector<Piece> pieces;
  for (const auto& arrival : arrivals) {
    if (pieces.empty() || pieces.back().bytes + arrival.bytes > enough) pieces.emplace_back();
    Piece& piece = pieces.back();
    piece = {piece.gradients + 1, std::max(piece.seconds, arrival.seconds), piece.bytes + arrival.bytes};
  }
  return pieces;
}

/// For each number of buckets and of pieces that they hold: when these are through at the earliest, and where
/// the last of the buckets begins.
class Plans {
 public:
  Plans(const std::vector<Piece>& pieces, CommunicationCost cost, std::size_t most_bytes)
      : pieces_(pieces), cost_(cost), most_bytes_(most_bytes) {
    finish_.emplace_back(pieces.size() + 1, kNever);
    finish_[0][0] = 0;
    begin_.emplace_back();
  }

  /// Allows one bucket more. Returns when all are through.
  double add_bucket() {
    const std::size_t count = pieces_.size();
    finish_.emplace_back(count + 1, kNever);
    begin_.emplace_back(count + 1, 0);
    for (std::size_t end = 1; end <= count; ++end) close_at(end, finish_.end()[-2]);
    return finish_.back()[count];
  }

  double finish(std::size_t buckets) const { return finish_[buckets].back(); }

  /// How many gradients go into each bucket.
  std::vector<std::size_t> cut(std::size_t buckets) const {
    std::vector<std::size_t> plan(buckets);
    std::size_t end = pieces_.size();
    for (; buckets > 0; --buckets) {
      const std::size_t begin = begin_[buckets][end];
      for (std::size_t i = begin; i < end; ++i) plan[buckets - 1] += pieces_[i].gradients;
      end = begin;
    }
    return plan;
  }

 private:
  void close_at(std::size_t end, const std::vector<double>& before) {
    std::size_t bytes = 0;
    for (std::size_t begin = end; begin-- > 0;) {
      bytes += pieces_[begin].bytes;
      if (bytes > most_bytes_ && end - begin > 1) break;
      const double through = std::max(before[begin], pieces_[end - 1].seconds) + seconds_of(bytes, cost_);
      if (through >= finish_.back()[end]) continue;
      finish_.back()[end] = through;
      begin_.back()[end] = begin;
    }
  }

  const std::vector<Piece>& pieces_;
  CommunicationCost cost_;
  std::size_t most_bytes_;
  std::vector<std::vector<double>> finish_;
  std::vector<std::vector<std::size_t>> begin_;
};

}  // namespace

std::vector<std::size_t> plan_buckets(const std::vector<GradientArrival>& arrivals, CommunicationCost cost,
                                      std::size_t most_bytes) {
  const bool merges = arrivals.size() > kMostPieces;
  const std::size_t least = merges ? sum_of(arrivals) / (kMostPieces / 2) + 1 : 0;
  const auto pieces = pieces_of(arrivals, least);
  Plans plans(pieces, cost, std::max(most_bytes, least));
  const std::size_t most = pieces.size();
  double best = kNever;
  for (std::size_t buckets = 1; buckets <= most; ++buckets) best = std::min(best, plans.add_bucket());
  const double tolerance = kTolerance * seconds_of(sum_of(arrivals), cost);
  for (std::size_t buckets = 1; buckets <= most; ++buckets) {
    if (plans.finish(buckets) <= best + tolerance) return plans.cut(buckets);
  }
  return {};
}

}  // namespace lockstep::parallel
