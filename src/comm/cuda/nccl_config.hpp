#pragma once

#include <map>
#include <string>

#include "lockstep/core/environment.hpp"

namespace lockstep::comm {

/// What a program sets of ncclConfig_t, by NCCL's names; NCCL chooses the rest.
struct NcclConfig {
  /// minCTAs, maxCTAs, cgaClusterSize, CTAPolicy, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched,
  /// collnetEnable, splitShare, trafficClass.
  std::map<std::string, int> numbers = {};
  /// netName; "": not set.
  std::string net_name = {};

  bool operator==(const NcclConfig&) const = default;

  /// Of LOCKSTEP_NCCL_CONFIG: "minCTAs=4,maxCTAs=16,netName=IB". Empty if it is not set. Throws UsageError
  /// for another name, a value that is not a number from 0, a name that is given twice, and minCTAs above
  /// maxCTAs.
  static NcclConfig from_environment(const Environment& environment = process_environment());
};

}  // namespace lockstep::comm
