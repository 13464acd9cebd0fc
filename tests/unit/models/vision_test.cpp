#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/image_processor.hpp"
#include "lockstep/models/lora.hpp"
#include "lockstep/models/trainer_model.hpp"
#include "lockstep/models/vision_transformer.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/sharded_init.hpp"
#include "lockstep/train/accelerator.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/models/golden_models.hpp"
#include "unit/parallel/sharded_net.hpp"

namespace lockstep::models {
namespace {

using testing::TemporaryFolder;
using Fields = nlohmann::ordered_json;

/// A folder with a configuration of golden/vision.txt, with other fields.
void write_config(const TemporaryFolder& folder, const std::string& name, const Fields& fields = {}) {
  Fields json = Fields::parse(golden_configs().at(name));
  if (!fields.is_null()) json.update(fields);
  testing::write_bytes(folder.path() / "config.json", json.dump());
}

ImageClassifier filled_classifier(const std::string& name, const Fields& fields = {}) {
  const TemporaryFolder folder;
  write_config(folder, name, fields);
  auto model = AutoModelForImageClassification::from_config(folder.path());
  fill(*model);
  return model;
}

/// As make_vision.py's images().
at::Tensor wave_images(std::int64_t height, std::int64_t width) {
  return at::arange(2 * 3 * height * width, at::kDouble)
      .mul(0.37)
      .sin()
      .view({2, 3, height, width})
      .to(at::kFloat);
}

at::Tensor square_images(const std::string& name) {
  const std::int64_t side = name.starts_with("convnext") ? 32 : 24;
  return wave_images(side, side);
}

std::vector<std::string> vision_names() {
  std::vector<std::string> names;
  for (const auto& [name, config] : golden_configs()) names.push_back(name);
  return names;
}

class Vision : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Golden, Vision, ::testing::ValuesIn(vision_names()),
                         [](const auto& test) { return test.param; });

TEST_P(Vision, AnswersAsItsPeerDoes) {
  const auto& name = GetParam();
  auto model = filled_classifier(name);
  model->eval();
  const at::Tensor logits = model(square_images(name));
  expect_golden(name + " logits", logits);
  const at::Tensor loss = torch::nn::functional::cross_entropy(logits, at::tensor({0, 4}, at::kLong));
  expect_golden(name + " loss", loss);
  loss.backward();
  const std::string prefix = name + " gradient:";
  std::vector<std::string> parameters;
  for (const auto& [key, values] : golden())
    if (key.starts_with(prefix)) parameters.push_back(key.substr(prefix.size()));
  ASSERT_GE(parameters.size(), 3U);
  expect_gradients(name, *model, parameters);
}

/// Images of other sizes and shapes; their edges may not fill a patch.
TEST_P(Vision, InterpolatesPositionsAsItsPeerDoes) {
  const auto& name = GetParam();
  auto model = filled_classifier(name);
  model->eval();
  const at::NoGradGuard no_grad;
  expect_golden(name + " wide", model(wave_images(32, 56)));
  expect_golden(name + " small", model(wave_images(17, 17)));
}

/// In training, the branches of layers are left out that are left out in Python after the same seed.
TEST_P(Vision, LeavesOutTheBranchesThatItsPeerLeavesOut) {
  const auto& name = GetParam();
  auto model = filled_classifier(name);
  model->train();
  const at::NoGradGuard no_grad;
  torch::manual_seed(5);
  for (int step = 0; step < 2; ++step)
    expect_golden(name + " dropped:" + std::to_string(step), model(square_images(name)));
}

TEST_P(Vision, SavesTheNamesOfItsPeer) { expect_saved(GetParam(), filled_classifier(GetParam())); }

/// All fields of the file, known or not, except the names of classes, which are what was set.
TEST_P(Vision, KeepsItsConfiguration) {
  const TemporaryFolder folder, out;
  write_config(folder, GetParam(), {{"a_field_of_tomorrow", {1, 2}}});
  {
    auto model = AutoModelForImageClassification::from_config(folder.path());
    fill(*model);
    save_pretrained(model, out.path());
  }
  Fields before = Fields::parse(std::ifstream(folder.path() / "config.json"));
  Fields after = Fields::parse(std::ifstream(out.path() / "config.json"));
  EXPECT_EQ(after, before);
  auto again = AutoModelForImageClassification::from_pretrained(out.path());
  again->eval();
  EXPECT_EQ(again->model_config().id2label.at(3), "class 3");
  expect_golden(GetParam() + " logits", again(square_images(GetParam())));
}

/// A folder without a classifier, or with one of other classes.
TEST_P(Vision, ANewClassifierReplacesOneOfOtherClasses) {
  const TemporaryFolder folder, bare;
  auto model = filled_classifier(GetParam());
  save_pretrained(model, folder.path());
  PretrainedReport report;
  auto other =
      AutoModelForImageClassification::from_pretrained(folder.path(), {.num_labels = 7, .report = &report});
  const bool has_two = GetParam() == "deit_teacher";
  EXPECT_EQ(report.initialized.size(), has_two ? 4U : 2U);
  EXPECT_TRUE(other->model_config().id2label.empty());
  EXPECT_EQ(other(square_images(GetParam())).sizes(), (std::vector<std::int64_t>{2, 7}));
  EXPECT_THROWS(other->set_id2label({"a"}), UsageError, "1 names", "7 classes");
  // The body alone, whose names lack the prefix, as models without a head are published.
  TensorMap tensors;
  for (auto& [name, tensor] : load_file(folder.path() / "model.safetensors").tensors) {
    if (name.find("classifier") == std::string::npos) tensors[name.substr(name.find('.') + 1)] = tensor;
  }
  save_file(tensors, bare.path() / "model.safetensors");
  std::filesystem::copy_file(folder.path() / "config.json", bare.path() / "config.json");
  auto headless = AutoModelForImageClassification::from_pretrained(bare.path(), {.report = &report});
  EXPECT_EQ(report.initialized.size(), has_two ? 4U : 2U);
  for (const auto& entry : headless->named_parameters()) {
    if (entry.key().find("classifier") != std::string::npos) continue;
    EXPECT_TRUE(at::equal(entry.value(), model->named_parameters()[entry.key()])) << entry.key();
  }
}

TEST(VisionModels, WrongImagesAndConfigurationsAreRefused) {
  auto model = filled_classifier("vit");
  EXPECT_THROWS(model(at::zeros({2, 1, 24, 24})), UsageError, "[rows, 3, height, width]", "[2, 1, 24, 24]");
  EXPECT_THROWS(model(at::zeros({2, 3, 7, 24})), UsageError, "at least 8 x 8 pixels");
  EXPECT_THROWS(model(at::zeros({2, 3, 24, 24}, at::kByte)), UsageError, "floating point");
  const TemporaryFolder folder;
  for (const auto& [fields, what] : std::vector<std::pair<Fields, const char*>>{
           {{{"hidden_size", 25}}, "'hidden_size' is 25, expected a multiple of 'num_attention_heads'"},
           {{{"patch_size", {8}}}, "'patch_size' is [8], expected an integer"},
           {{{"hidden_act", "mish"}}, "'hidden_act'"}}) {
    write_config(folder, "vit", fields);
    EXPECT_THROWS(AutoModelForImageClassification::from_config(folder.path()), DataError, what);
  }
  write_config(folder, "vit", {{"image_size", 4}});
  EXPECT_THROWS(AutoModelForImageClassification::from_config(folder.path()), UsageError,
                "image_size (4 x 4)");
  write_config(folder, "convnext", {{"depths", {1, 2}}});
  EXPECT_THROWS(AutoModelForImageClassification::from_config(folder.path()), DataError, "3, 3 and 2 stages");
  EXPECT_THROWS(AutoModelForCausalLM::from_config(folder.path()), DataError,
                "\"convnext\", which has no causal language model");
}

/// Adapters of the linear layers, with the classifier trained as well.
TEST(VisionModels, TakesAdapters) {
  auto model = filled_classifier("vit");
  model->eval();
  const at::Tensor before = model(square_images("vit"));
  add_lora(model, {.r = 2, .target_modules = {"query", "value"}, .modules_to_save = {"classifier"}});
  EXPECT_TRUE(at::equal(model(square_images("vit")), before));
  std::int64_t trained = 0;
  for (const auto& entry : model->named_parameters()) trained += entry.value().requires_grad() ? 1 : 0;
  // Two matrices for each of two layers' queries and values, and the classifier.
  EXPECT_EQ(trained, 2 * 2 * 2 + 2);
}

/// Batches have transformers' name of the images, or that of this library's data sets.
TEST(VisionModels, IsATrainersModel) {
  auto model = filled_classifier("vit");
  const Accelerator accelerator(World::single(), {.device = "cpu"});
  const auto adapter = trainer_model(model);
  adapter->place(accelerator);
  adapter->train(false);
  const at::NoGradGuard no_grad;
  for (const char* name : {"pixel_values", "image"})
    expect_golden("vit logits", adapter->evaluate(Batch{{name, square_images("vit")}})["logits"]);
}

/// The example of docs/models.md.
TEST(VisionModels, OpensAFolderWithItsProcessor) {
  namespace models = lockstep::models;
  const TemporaryFolder source, target;
  const auto folder = source.path(), out = target.path();
  models::save_pretrained(filled_classifier("vit"), folder);
  testing::write_bytes(folder / "preprocessor_config.json",
                       R"({"image_processor_type": "ViTImageProcessor", "size": 24})");
  const at::Tensor images = at::arange(2 * 3 * 20 * 30).remainder(251).to(at::kByte).view({2, 3, 20, 30});
  const auto processor = models::ImageProcessorConfig::from_file(folder);
  auto vit = models::AutoModelForImageClassification::from_pretrained(folder, {.num_labels = 5});
  vit->eval();
  const at::Tensor logits = vit(models::process_images(processor, images));
  models::save_pretrained(vit, out);
  EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{2, 5}));
  EXPECT_EQ(testing::read_bytes(out / "preprocessor_config.json"),
            testing::read_bytes(folder / "preprocessor_config.json"));
}

// ---- Data parallelism

const auto vision_loss = [](auto& model, int rank, int step) {
  const at::Tensor images = wave_images(24, 24).add(0.1 * rank + step).sin();
  return torch::nn::functional::cross_entropy(model(images),
                                              at::tensor({step % 5, (step + rank) % 5}, at::kLong));
};

template <class Wrapped>
std::vector<at::Tensor> trained_classifier(Wrapped& wrapped, ImageClassifier model, const auto& whole,
                                           const std::function<int()>& data) {
  std::vector<at::Tensor> parameters;
  for (auto& parameter : model->parameters())
    if (parameter.requires_grad()) parameters.push_back(parameter);
  testing::losses_of(
      wrapped, parameters, [&](auto& net, int step) { return vision_loss(net, data(), step); }, 2);
  [[maybe_unused]] const auto all = whole();
  std::vector<at::Tensor> values;
  for (const auto& parameter : model->parameters()) values.push_back(parameter.detach().clone());
  return values;
}

std::vector<at::Tensor> classifier_with_ddp(const ProcessGroup& group, const std::string& name, bool same) {
  auto model = filled_classifier(name);
  DistributedDataParallel<ImageClassifier> wrapped(model, group);
  return trained_classifier(
      wrapped, model, [] { return 0; }, [&] { return same ? 0 : group.rank(); });
}

std::vector<at::Tensor> classifier_with_fsdp(const ProcessGroup& group, const std::string& name, bool same) {
  auto model = filled_classifier(name);
  auto wrapped = fully_shard(model, group);
  return trained_classifier(
      wrapped, model, [&] { return wrapped.full_parameters(); }, [&] { return same ? 0 : group.rank(); });
}

TEST(VisionModels, DdpFsdpAndOneRankTrainTheSameBits) {
  for (const std::string name : {"vit", "deit_teacher", "dinov2_swiglu"}) {
    std::vector<at::Tensor> alone;
    testing::run_group(1, [&](const ProcessGroup& group) { alone = classifier_with_ddp(group, name, true); });
    testing::run_group(2, [&](const ProcessGroup& group) {
      testing::expect_equal(classifier_with_ddp(group, name, true), alone, name + " with DDP");
      testing::expect_equal(classifier_with_fsdp(group, name, true), alone, name + " with FSDP");
      testing::expect_equal(classifier_with_fsdp(group, name, false), classifier_with_ddp(group, name, false),
                            name + " of different images");
    });
  }
}

// ---- How images are prepared

ImageProcessorConfig processor_of_text(const std::string& text, const std::string& model_type = "") {
  const TemporaryFolder folder;
  testing::write_bytes(folder.path() / "preprocessor_config.json", text);
  if (!model_type.empty())
    testing::write_bytes(folder.path() / "config.json", R"({"model_type": ")" + model_type + "\"}");
  return ImageProcessorConfig::from_file(folder.path());
}

void expect_result(const ImageProcessorConfig& config, std::int64_t height, std::int64_t width) {
  const auto size = config.result_size();
  EXPECT_EQ(size.height, height);
  EXPECT_EQ(size.width, width);
}

TEST(ImageProcessor, ReadsEverySpelling) {
  expect_result(
      processor_of_text(R"({"feature_extractor_type": "ViTFeatureExtractor", "size": 384, "resample": 3})"),
      384, 384);
  expect_result(processor_of_text(R"({"image_processor_type": "ViTImageProcessorFast", "size": [32, 48]})"),
                32, 48);
  expect_result(processor_of_text(
                    R"({"image_processor_type": "ViTImageProcessor", "size": {"height": 20, "width": 30}})"),
                20, 30);
  const auto deit = processor_of_text(
      R"({"feature_extractor_type": "DeiTFeatureExtractor", "size": 256, "crop_size": 192})");
  expect_result(deit, 192, 192);
  EXPECT_EQ(deit.size.height, 256);
  EXPECT_EQ(deit.resample, ImageFilter::bicubic);
  const auto dino = processor_of_text("{}", "dinov2");
  expect_result(dino, 224, 224);
  EXPECT_EQ(dino.shortest_edge, 224);
  EXPECT_FLOAT_EQ(dino.image_mean[0], 0.48145466F);
  const auto convnext = processor_of_text(
      R"({"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 224}})");
  expect_result(convnext, 224, 224);
  EXPECT_EQ(convnext.folder_options().resize, 256);
  EXPECT_EQ(processor_of_text("{}", "convnext").folder_options().resize_to.width, 384);
  EXPECT_EQ(processor_of_text(R"({"image_mean": null})", "vit").mean(),
            (std::vector<float>{0.5F, 0.5F, 0.5F}));
  const auto raw =
      processor_of_text(R"({"do_rescale": false, "image_mean": [51, 51, 51], "image_std": 255})", "vit");
  EXPECT_FLOAT_EQ(raw.mean()[1], 0.2F);
  EXPECT_FLOAT_EQ(raw.std()[2], 1.0F);
}

TEST(ImageProcessor, WhatItCannotDoIsNamed) {
  const TemporaryFolder empty;
  EXPECT_THROWS(ImageProcessorConfig::from_file(empty.path()), DataError, "preprocessor_config.json",
                "no such file");
  EXPECT_THROWS(processor_of_text(R"({"image_processor_type": "CLIPImageProcessor"})"), DataError,
                "'image_processor_type' is \"CLIPImageProcessor\"", "DeiTImageProcessor");
  EXPECT_THROWS(processor_of_text("{}"), DataError, "'image_processor_type' is missing");
  for (const auto& [text, what] : std::vector<std::pair<const char*, const char*>>{
           {R"({"size": {"longest_edge": 5}})", "'shortest_edge' alone"},
           {R"({"size": 0})", "'size' is 0"},
           {R"({"size": 100000})", "at most 65536 pixels"},
           {R"({"resample": 0})", "'resample' is 0"},
           {R"({"do_pad": true})", "'do_pad' is true"},
           {R"({"image_std": [1, 0, 1]})", "'image_std'"},
           {R"({"image_mean": [1, 2]})", "three channels"},
           {R"({"crop_size": {"height": 3}})", "'crop_size'"}}) {
    EXPECT_THROWS(processor_of_text(text, "vit"), DataError, what);
  }
}

TEST(ImageProcessor, IsWrittenAsItWasReadWithWhatChanged) {
  const std::string text =
      R"({"image_processor_type": "DeiTImageProcessor", "size": 256, "crop_size": {"height": 224, "width": 224}, "x": 1})";
  auto processor = processor_of_text(text);
  EXPECT_EQ(Fields::parse(processor.to_json()), Fields::parse(text));
  processor.set_result_size(112);
  expect_result(processor, 112, 112);
  EXPECT_EQ(
      Fields::parse(processor.to_json()),
      Fields::parse(R"({"image_processor_type": "DeiTImageProcessor", "size": {"height": 128, "width": 128},
                              "crop_size": {"height": 112, "width": 112}, "x": 1})"));
  EXPECT_THROWS(processor.set_result_size(0), UsageError, "0 pixels");
  EXPECT_THROWS(ImageProcessorConfig{}.to_json(), UsageError, "this one was not");
  processor.crop_pct = 0.9;
  EXPECT_THROWS(processor.to_json(), UsageError, "crop_pct");
}

TEST(ImageProcessor, PreparesImagesInMemory) {
  auto processor = processor_of_text(R"({"size": 6})", "vit");
  const at::Tensor gray = at::arange(2 * 4 * 4, at::kByte).mul(7).view({2, 1, 4, 4});
  const at::Tensor pixels = process_images(processor, gray);
  EXPECT_EQ(pixels.sizes(), (std::vector<std::int64_t>{2, 3, 6, 6}));
  EXPECT_TRUE(at::equal(pixels.select(1, 0), pixels.select(1, 2)));
  processor.do_resize = false;
  EXPECT_TRUE(at::allclose(process_images(processor, gray).select(1, 1),
                           gray.select(1, 0).to(at::kFloat) / 255 * 2 - 1));
  processor.do_center_crop = true;
  processor.crop_size = {3, 6};
  const at::Tensor cut = resize_images(processor, gray);
  // Of four rows the first three, and a black column on each side.
  EXPECT_TRUE(at::equal(cut.narrow(3, 1, 4), gray.narrow(2, 0, 3)));
  EXPECT_FALSE(cut.select(3, 0).any().item<bool>());
  EXPECT_THROWS(process_images(processor, gray.to(at::kFloat)), UsageError, "uint8");
  EXPECT_THROWS(process_images(processor, at::zeros({1, 2, 4, 4}, at::kByte)), UsageError, "[1, 2, 4, 4]");
}

}  // namespace
}  // namespace lockstep::models
