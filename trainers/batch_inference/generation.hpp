#pragma once

#include "lockstep/models/generation.hpp"
#include "options.hpp"

/// Stands for padding behind a text: no token has this number.
inline constexpr std::int64_t kNoToken = std::int64_t{1} << 40;

/// Whether the task writes texts.
bool is_generation(const Options& options);

/// The settings of generate() that the options give and, for their length, the program's default; the rest is
/// that of the model's folder. *Local*. Throws DataError for a folder with settings that are wrong or not
/// implemented, UsageError for options that contradict each other or it, and for flags of sampling without
/// sampling.
lockstep::models::GenerationConfig generation_of(const Options& options);

/// Whether tokens are drawn.
bool draws_tokens(const Options& options);
