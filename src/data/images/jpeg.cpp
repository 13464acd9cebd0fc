#include "data/images/jpeg.hpp"

// clang-format off
#include <cstddef>
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <array>
#include <csetjmp>
#include <optional>

namespace lockstep::images {
namespace {

/// Limit of a progressive file's scans, each of which takes a pass over the image.
constexpr int kMostScans = 500;

/// libjpeg's error handler with its jump target.
struct Failure {
  jpeg_error_mgr manager;
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> text;
};

[[noreturn]] void on_error(j_common_ptr info) {
  auto* failure = reinterpret_cast<Failure*>(info->err);
  info->err->format_message(info, failure->text.data());
  std::longjmp(failure->back, 1);
}

/// Warnings (extraneous bytes before a marker, an invalid code) do not stop decoding, as in Pillow.
void on_message(j_common_ptr, int) {}

boolean on_end_of_bytes(j_decompress_ptr info) {
  ERREXIT(info, JERR_INPUT_EOF);
  return FALSE;
}

void skip_bytes(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  if (static_cast<std::size_t>(count) > info->src->bytes_in_buffer) ERREXIT(info, JERR_INPUT_EOF);
  info->src->next_input_byte += count;
  info->src->bytes_in_buffer -= static_cast<std::size_t>(count);
}

void check_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMostScans)
    ERREXIT(info, JERR_BAD_PROGRESSION);
}

void do_nothing(j_decompress_ptr) {}

std::uint8_t over_255(int product) {
  const int rounded = product + 128;
  return static_cast<std::uint8_t>(((rounded >> 8) + rounded) >> 8);
}

/// Adobe's inverted CMYK to RGB, as Pillow converts it.
void cmyk_to_rgb(std::uint8_t* pixel, int count) {
  for (; count > 0; --count, pixel += kPixelBytes) {
    const int white = pixel[3];
    for (int channel = 0; channel < 3; ++channel)
      pixel[channel] = static_cast<std::uint8_t>(white - over_255((255 - pixel[channel]) * white));
  }
}

/// The part of the decoder's output that a region needs, at the selected scale.
struct Window {
  int left;
  int top;
  int right;
  int bottom;
};

/// Decodes one file. Functions that libjpeg may leave with longjmp have no local objects with destructors.
class Jpeg {
 public:
  Jpeg(std::span<const std::uint8_t> bytes, const std::string& name) : name_(name) {
    info_.err = jpeg_std_error(&failure_.manager);
    failure_.manager.error_exit = on_error;
    failure_.manager.emit_message = on_message;
    source_.next_input_byte = bytes.data();
    source_.bytes_in_buffer = bytes.size();
    source_.init_source = do_nothing;
    source_.fill_input_buffer = on_end_of_bytes;
    source_.skip_input_data = skip_bytes;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = do_nothing;
    progress_.progress_monitor = check_scans;
    guarded([](Jpeg& self) {
      jpeg_create_decompress(&self.info_);
      self.info_.src = &self.source_;
      self.info_.progress = &self.progress_;
      jpeg_read_header(&self.info_, TRUE);
    });
  }
  ~Jpeg() { jpeg_destroy_decompress(&info_); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  int width() const { return static_cast<int>(info_.image_width); }
  int height() const { return static_cast<int>(info_.image_height); }

  Decoded region(const Region& wanted) {
    const int d = wanted.denominator;
    window_ = {wanted.left / d, wanted.top / d, (wanted.left + wanted.width + d - 1) / d,
               (wanted.top + wanted.height + d - 1) / d};
    denominator_ = d;
    guarded([](Jpeg& self) { self.start(); });
    Decoded decoded{.memory = Pixels(columns_, window_.bottom - window_.top), .denominator = d};
    memory_ = &decoded.memory;
    guarded([](Jpeg& self) { self.read(); });
    decoded.view = decoded.memory.view().part(window_.left - first_column_, 0, window_.right - window_.left,
                                              window_.bottom - window_.top);
    return decoded;
  }

 private:
  void guarded(void (*action)(Jpeg&)) {
    if (setjmp(failure_.back) == 0) {
      action(*this);
      return;
    }
    const bool cut_off = failure_.manager.msg_code == JERR_INPUT_EOF;
    // Also needed in the constructor, where the destructor does not run. Destroying twice is harmless.
    jpeg_destroy_decompress(&info_);
    refuse(name_, cut_off ? "the JPEG file is truncated"
                          : std::string("the JPEG file is damaged: ") + failure_.text.data());
  }

  bool is_cmyk() const { return info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK; }

  /// Uses the accurate integer IDCT and smooth upsampling: libjpeg's defaults, like Pillow.
  void start() {
    info_.out_color_space = is_cmyk() ? JCS_CMYK : JCS_EXT_RGBX;
    info_.scale_num = 1;
    info_.scale_denom = static_cast<unsigned>(denominator_);
    jpeg_start_decompress(&info_);
    window_.right = std::min(window_.right, static_cast<int>(info_.output_width));
    window_.bottom = std::min(window_.bottom, static_cast<int>(info_.output_height));
    // Smooth upsampling reads the adjacent block: with one more block on each side, the region has the same
    // pixels as in the full image.
    const int block = info_.max_h_samp_factor * DCTSIZE;
    const int left = std::max(window_.left - block, 0);
    const int right = std::min(window_.right + block, static_cast<int>(info_.output_width));
    first_column_ = 0;
    columns_ = static_cast<int>(info_.output_width);
    if (right - left == columns_) return;
    auto offset = static_cast<JDIMENSION>(left);
    auto count = static_cast<JDIMENSION>(right - left);
    jpeg_crop_scanline(&info_, &offset, &count);
    first_column_ = static_cast<int>(offset);
    columns_ = static_cast<int>(count);
  }

  void read() {
    if (window_.top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(window_.top));
    for (int y = 0; y < memory_->height; ++y) {
      JSAMPROW row = memory_->row(y);
      if (jpeg_read_scanlines(&info_, &row, 1) != 1) ERREXIT(&info_, JERR_INPUT_EOF);
      if (is_cmyk()) cmyk_to_rgb(row, columns_);
    }
  }

  const std::string& name_;
  Failure failure_{};
  jpeg_decompress_struct info_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  Pixels* memory_ = nullptr;
  Window window_{};
  int denominator_ = 1;
  int first_column_ = 0;
  int columns_ = 0;
};

}  // namespace

Decoded decode_jpeg(std::span<const std::uint8_t> bytes, const std::string& name, std::int64_t max_pixels,
                    const ChooseRegion& choose) {
  Jpeg jpeg(bytes, name);
  check_pixels(name, jpeg.width(), jpeg.height(), max_pixels);
  return jpeg.region(choose(jpeg.width(), jpeg.height()));
}

}  // namespace lockstep::images
