// What dataset_stream.py loads: a data set's rows through Arrow's C stream interface.

#include <cstdio>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"

/// Fills `stream` with the rows of a file or folder, shuffled unless `seed` is negative; 0, or 1 after an
/// error.
extern "C" int open_stream(const char* path, long seed, ArrowArrayStream* stream) {
  try {
    auto data = lockstep::ArrowDataset::load(path);
    if (seed >= 0) data = data.shuffle(static_cast<std::uint64_t>(seed));
    data.export_to_c(stream);
    return 0;
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
