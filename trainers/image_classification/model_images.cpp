#include "model_images.hpp"

#include "lockstep/core/error.hpp"
#include "models.hpp"

#ifdef LOCKSTEP_MODEL_FOLDERS
#include "lockstep/models/image_processor.hpp"
#endif

std::optional<ModelImages> model_images(const Options& options) {
  if (model_kind(options) != ModelKind::folder) return std::nullopt;
#ifdef LOCKSTEP_MODEL_FOLDERS
  auto processor = lockstep::models::ImageProcessorConfig::from_file(options.model);
  if (options.resize > 0) processor.set_result_size(options.resize);
  const auto resize = [processor](const at::Tensor& images) {
    return lockstep::models::resize_images(processor, images);
  };
  const auto save = [processor](const std::filesystem::path& folder) {
    lockstep::models::save_image_processor(processor, folder);
  };
  return ModelImages{.size = processor.result_size(),
                     .keeps_size = !processor.do_resize && !processor.do_center_crop,
                     .filter = processor.resample,
                     .statistics = {.mean = processor.mean(), .std = processor.std()},
                     .evaluation = processor.folder_options(),
                     .resize = resize,
                     .save = save};
#else
  check_model_folder(options);
  return std::nullopt;
#endif
}
