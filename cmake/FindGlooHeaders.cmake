# Finds the headers of Gloo and defines GlooHeaders::headers, with USE_C10D_GLOO.
#
# LibTorch carries Gloo's code inside libtorch_cpu but not the headers that its ProcessGroupGloo.hpp includes.
# Headers only: linking libgloo as well would put a second copy of its code, of another version, into the process.

find_path(GlooHeaders_INCLUDE_DIR gloo/context.h)
mark_as_advanced(GlooHeaders_INCLUDE_DIR)
if(NOT GlooHeaders_INCLUDE_DIR)
  message(FATAL_ERROR "Gloo's headers (gloo/context.h) are missing. Install Debian's package libgloo-dev, or name the "
    "folder that holds gloo/: -DGlooHeaders_INCLUDE_DIR=/path/to/include")
endif()
if(NOT TARGET GlooHeaders::headers)
  add_library(GlooHeaders::headers INTERFACE IMPORTED)
  target_include_directories(GlooHeaders::headers SYSTEM INTERFACE "${GlooHeaders_INCLUDE_DIR}")
  target_compile_definitions(GlooHeaders::headers INTERFACE USE_C10D_GLOO)
endif()
set(GlooHeaders_FOUND TRUE)
