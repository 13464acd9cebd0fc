# What `cmake --install` puts down, beside the programs: the library, its headers and a package for
# find_package(lockstep). The package finds LibTorch by the same rule as this build and knows where this build found
# it, so it goes on working when the prefix is moved.
include(CMakePackageConfigHelpers)

set(LOCKSTEP_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")
install(TARGETS lockstep lockstep_models lockstep_all EXPORT lockstepTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(TARGET lockstep_datasets)
  install(TARGETS lockstep_datasets EXPORT lockstepTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
if(ApacheArrow_LIBRARIES)
  # The Python package's libraries travel with ours, which look beside themselves: no folder of this machine is left.
  install(PROGRAMS ${ApacheArrow_LIBRARIES} DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(lockstep_datasets PROPERTIES INSTALL_RPATH_USE_LINK_PATH OFF)
endif()
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION "${LOCKSTEP_PACKAGE_DIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/lockstep" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.hpp")

# The build folder is a package too: find_package(lockstep) with CMAKE_PREFIX_PATH=build uses the library where it was built.
export(EXPORT lockstepTargets NAMESPACE lockstep:: FILE "${PROJECT_BINARY_DIR}/lockstepTargets.cmake")
file(COPY "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake" "${PROJECT_SOURCE_DIR}/cmake/LibTorchSearch.cmake"
  DESTINATION "${PROJECT_BINARY_DIR}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/lockstepConfig.cmake" INSTALL_DESTINATION "${LOCKSTEP_PACKAGE_DIR}"
  NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# Before 1.0 each minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/lockstepConfig.cmake" "${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake" "${PROJECT_SOURCE_DIR}/cmake/LibTorchSearch.cmake"
  DESTINATION "${LOCKSTEP_PACKAGE_DIR}")
