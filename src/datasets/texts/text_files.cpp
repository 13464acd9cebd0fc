#include "lockstep/datasets/text_files.hpp"

#include "datasets/dataset/dataset_access.hpp"
#include "datasets/readers/readers.hpp"

namespace lockstep {

ArrowDataset load_text(const std::filesystem::path& path, const TextFileOptions& options) {
  return with_source(readers::load_text_rows(path, options.keep_linebreaks), path);
}

}  // namespace lockstep
