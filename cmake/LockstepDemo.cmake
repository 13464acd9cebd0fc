# The target `demo`: the programs that `make demo` runs and nothing else, so that it starts soon. The CUDA library is
# among them only where there is a driver to use it with.
add_custom_target(demo)
set(programs lockstep_launcher image_classification)
if(EXISTS /dev/nvidiactl)
  list(APPEND programs lockstep_cuda)
endif()
foreach(program IN LISTS programs)
  if(TARGET ${program})
    add_dependencies(demo ${program})
  endif()
endforeach()
