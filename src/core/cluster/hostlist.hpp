#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The maximum number of names in a list.
inline constexpr std::size_t kMostHosts = 262'144;

/// Expands a Slurm host list to host names, as `scontrol show hostnames` does: "n[08-10,12],login" is n08,
/// n09, n10, n12 and login. *Local*.
///
/// Items are separated by commas or blanks. Each bracket contains numbers and ranges; a number has at least
/// as many digits as the low end of its range. Order and duplicates are kept. If an item has several
/// brackets, the last one varies fastest and then the others from the left, as in Slurm. Text after the last
/// bracket is accepted ("m[1-2]-ib"), as in Slurm since 23.11. An empty list has no hosts.
///
/// Throws UsageError, with the list and the reason, for a bracket that is not closed, a range that is not a
/// range or is reversed, more than 65536 hosts in a range, or more than kMostHosts hosts in total. This is
/// stricter than scontrol, which expands "n[1" to a host "n]" and "n[1-]" to "n1".
std::vector<std::string> expand_hostlist(std::string_view list);

}  // namespace lockstep
