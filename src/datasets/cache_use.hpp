#pragma once

#include <filesystem>
#include <system_error>

namespace lockstep {

// What list_cache() asks about the marks that CacheUse leaves.

/// Whether somebody reads the entry now. Removes the marks of processes of this host that are gone.
bool is_read(const std::filesystem::path& entry);

/// When the entry was last written or opened.
std::filesystem::file_time_type last_use_of(const std::filesystem::path& entry, std::error_code& failure);

}  // namespace lockstep
