#include "lockstep/data/text_files.hpp"

#include "data/dataset/state.hpp"
#include "data/readers/readers.hpp"

namespace lockstep {

ArrowDataset load_text(const std::filesystem::path& path, const TextFileOptions& options) {
  return with_source(readers::read_text_lines(path, options.keep_linebreaks), path);
}

}  // namespace lockstep
