#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/arrow_writer.hpp"

namespace lockstep {

ArrowDataset ArrowDataset::from_generator(const std::function<std::optional<Value>()>& next,
                                          const std::filesystem::path& file,
                                          const std::optional<Features>& features) {
  ArrowWriter writer(file, features);
  for (auto row = next(); row; row = next()) writer.write(*std::move(row));
  writer.finalize();
  LoadOptions options;
  options.format = FileFormat::arrow;
  return load(file, options);
}

}  // namespace lockstep
