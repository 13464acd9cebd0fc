#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The most names that one list may stand for.
inline constexpr std::size_t kMostHosts = 262'144;

/// The host names that a Slurm host list stands for, as `scontrol show hostnames` prints them:
/// "n[08-10,12],login" is n08, n09, n10, n12 and login. *Local*.
///
/// Items are parted by commas or blanks. Each bracket holds numbers and ranges; a number has at least as many
/// digits as the low end of its range is written with. Order and duplicates are kept. Where an item has
/// several brackets, the last one runs fastest and then the others from the left, as in Slurm. Text behind
/// the last bracket is accepted ("m[1-2]-ib"), which Slurm does since 23.11. An empty list has no hosts.
///
/// Throws UsageError, with the list and the place, for a bracket that does not close, a range that is no
/// range or runs backwards, more than 65536 hosts in a range, or more than kMostHosts hosts in all. That is
/// stricter than scontrol, which makes a host "n]" of "n[1" and a host "n1" of "n[1-]".
std::vector<std::string> expand_hostlist(std::string_view list);

}  // namespace lockstep
