#include "lockstep/datasets/text_files.hpp"

#include "datasets/dataset/state.hpp"

namespace lockstep {

ArrowDataset load_text(const std::filesystem::path& path, const TextFileOptions& options) {
  return with_source(load_text_rows(path, options.keep_linebreaks), path);
}

}  // namespace lockstep
