#include "data/images/png.hpp"

#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

namespace lockstep::images {
namespace {

/// Decodes one file. Functions that libpng may leave with longjmp have no local objects with destructors.
class Png {
 public:
  Png(std::span<const std::uint8_t> bytes, const std::string& name) : name_(name), left_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, &info_, nullptr);
      refuse(name_, "no memory for libpng");
    }
    guarded([](Png& self) {
      png_set_read_fn(self.png_, &self, read_bytes);
      // Chunks with a wrong checksum are discarded if they are not part of the image.
      png_set_crc_action(self.png_, PNG_CRC_ERROR_QUIT, PNG_CRC_WARN_DISCARD);
      png_set_user_limits(self.png_, 1 << 30, 1 << 30);
      png_read_info(self.png_, self.info_);
    });
  }
  ~Png() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  std::int64_t width() const { return png_get_image_width(png_, info_); }
  std::int64_t height() const { return png_get_image_height(png_, info_); }

  Pixels read() {
    Pixels pixels(static_cast<int>(width()), static_cast<int>(height()));
    rows_.resize(static_cast<std::size_t>(pixels.height));
    for (int y = 0; y < pixels.height; ++y) rows_[static_cast<std::size_t>(y)] = pixels.row(y);
    guarded([](Png& self) {
      if (self.is_deep_grey()) {
        self.read_deep_grey();
      } else {
        self.read_rows();
      }
    });
    for (int y = 0; is_deep_grey() && y < pixels.height; ++y) clip_grey(pixels.row(y), pixels.width);
    return pixels;
  }

 private:
  [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
    auto* self = static_cast<Png*>(png_get_error_ptr(png));
    std::snprintf(self->text_.data(), self->text_.size(), "%s", text);
    std::longjmp(self->back_, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void read_bytes(png_structp png, png_bytep to, std::size_t count) {
    auto* self = static_cast<Png*>(png_get_io_ptr(png));
    if (count > self->left_.size()) {
      self->cut_off_ = true;
      png_error(png, "truncated");
    }
    std::memcpy(to, self->left_.data(), count);
    self->left_ = self->left_.subspan(count);
  }

  void guarded(void (*action)(Png&)) {
    if (setjmp(back_) == 0) {
      action(*this);
      return;
    }
    // Also needed in the constructor, where the destructor does not run. Destroying twice is harmless.
    png_destroy_read_struct(&png_, &info_, nullptr);
    refuse(name_,
           cut_off_ ? "the PNG file is truncated" : std::string("the PNG file is damaged: ") + text_.data());
  }

  /// Converts every kind of PNG to red, green, blue and a filler byte; drops transparency, like
  /// convert("RGB").
  void read_rows() {
    png_set_expand(png_);
    png_set_strip_16(png_);
    png_set_gray_to_rgb(png_);
    png_set_filler(png_, 0xFF, PNG_FILLER_AFTER);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    if (png_get_rowbytes(png_, info_) != png_get_image_width(png_, info_) * std::size_t{kPixelBytes})
      png_error(png_, "an unknown kind of pixels");
    png_read_image(png_, rows_.data());
  }

  /// Grey values of 16 bits.
  bool is_deep_grey() const {
    return png_get_bit_depth(png_, info_) == 16 && png_get_color_type(png_, info_) == PNG_COLOR_TYPE_GRAY;
  }

  /// Leaves two bytes a pixel at the beginning of each row.
  void read_deep_grey() {
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    png_read_image(png_, rows_.data());
  }

  /// Grey values of 16 bits are clipped to 255, like convert("RGB") of Pillow's mode "I;16": depth and other
  /// measurements mostly lie there. Goes backwards, because four bytes take the place of two.
  static void clip_grey(std::uint8_t* row, int width) {
    for (int x = width; x-- > 0;) {
      const std::uint8_t grey = row[2 * x] != 0 ? 0xFF : row[2 * x + 1];
      std::fill_n(row + kPixelBytes * x, 3, grey);
      row[kPixelBytes * x + 3] = 0xFF;
    }
  }

  const std::string& name_;
  std::span<const std::uint8_t> left_;
  bool cut_off_ = false;
  std::array<char, 200> text_{};
  std::jmp_buf back_{};
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::vector<png_bytep> rows_;
};

}  // namespace

Decoded decode_png(std::span<const std::uint8_t> bytes, const std::string& name, std::int64_t max_pixels,
                   const ChooseRegion& choose) {
  Png png(bytes, name);
  check_pixels(name, png.width(), png.height(), max_pixels);
  const Region wanted = choose(static_cast<int>(png.width()), static_cast<int>(png.height()));
  Decoded decoded{.memory = png.read()};
  decoded.view = decoded.memory.view().part(wanted.left, wanted.top, wanted.width, wanted.height);
  return decoded;
}

}  // namespace lockstep::images
