#include "model_folder.hpp"

#include <fmt/format.h>

#include "lockstep/core/error.hpp"

#ifdef LOCKSTEP_MODEL_FOLDERS
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/class_names.hpp"
#include "lockstep/models/pretrained.hpp"

namespace {

using lockstep::Accelerator;
using lockstep::UsageError;
using lockstep::models::AutoModelForImageClassification;
using lockstep::models::ImageClassifier;

/// Says which layers are new, and why.
void print_new_layers(const Accelerator& accelerator, const lockstep::models::PretrainedReport& report,
                      const lockstep::models::ModelConfig& before, const Images& images,
                      const Options& options) {
  if (report.initialized.empty()) return;
  accelerator.print(fmt::format("new: {}{}", fmt::join(report.initialized, ", "),
                                before.num_labels != images.classes
                                    ? fmt::format(": {} has {} classes, the data have {}", options.model,
                                                  before.num_labels, images.classes)
                                    : fmt::format(": {} has no classifier", options.model)));
}

/// A classifier that is kept goes on with its numbers, whatever the classes are called.
void name_classes(const Accelerator& accelerator, ImageClassifier& model, const Images& images,
                  const Options& options) {
  if (images.class_names.empty()) return;
  const auto names = model->model_config().id2label;
  if (lockstep::models::are_class_names(names) && !names.empty() && names != images.class_names) {
    accelerator.print(
        fmt::format("the classes of {} ('{}', ...) are called otherwise in the data ('{}', ...): class 0 "
                    "is the first of each, and so on",
                    options.model, names.front(), images.class_names.front()));
  }
  model->set_id2label(images.class_names);
}

}  // namespace

void check_model_folder(const Options& options) {
  AutoModelForImageClassification::config_of(options.model);
  if (!options.weights.empty())
    throw UsageError("--weights: the folder " + options.model + " has weights of its own: leave it out");
  if (options.normalize) {
    throw UsageError("--normalize: the folder " + options.model +
                     " says how images are normalized: leave it out");
  }
}

ImageClassifier folder_model(const Accelerator& accelerator, const Images& images, const Options& options) {
  const auto before = AutoModelForImageClassification::config_of(options.model);
  lockstep::models::PretrainedReport report;
  auto model = AutoModelForImageClassification::from_pretrained(
      options.model, {.num_labels = images.classes, .report = &report});
  if (model->num_channels() != images.channels) {
    throw UsageError(fmt::format("--model {} takes images of {} channels; those of folders and files have {}",
                                 options.model, model->num_channels(), images.channels));
  }
  print_new_layers(accelerator, report, before, images, options);
  name_classes(accelerator, model, images, options);
  return model;
}

void save_folder(const ImageClassifier& model, const Images& images, const Options& options) {
  lockstep::models::save_pretrained(model, options.model_dir);
  images.of_model->save(options.model_dir);
}

#else

void check_model_folder(const Options& options) {
  throw lockstep::UsageError("--model " + options.model +
                             ": this program was built without the models of the hub. Run 'scripts/setup "
                             "build' and build it again");
}

#endif
