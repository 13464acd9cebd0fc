# What `cmake --install` puts down beside the programs: the libraries, their headers and a package for
# find_package(lockstep). The prefix can be moved: all of it looks for LibTorch in the prefix's own `libtorch`, which is a
# link to the one that this build used, or what the user puts there.
include(CMakePackageConfigHelpers)

set(LOCKSTEP_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")
install(TARGETS lockstep lockstep_models lockstep_compiled lockstep_all EXPORT lockstepTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(TARGET lockstep_datasets)
  install(TARGETS lockstep_datasets EXPORT lockstepTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  if(ApacheArrow_LIBRARIES)
    # The Python package's libraries travel with ours.
    install(PROGRAMS ${ApacheArrow_LIBRARIES} DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    install(FILES ${ApacheArrow_NOTICES} DESTINATION "${CMAKE_INSTALL_DOCDIR}/arrow")
  else()
    set_target_properties(lockstep_datasets PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  endif()
  # So does Oniguruma, of which Debian has no static library, under the name that ours asks for: libonig.so.5.
  file(REAL_PATH "${LOCKSTEP_ONIGURUMA_LIBRARY}" oniguruma)
  cmake_path(GET oniguruma FILENAME oniguruma_name)
  string(REGEX MATCH "^libonig\\.so\\.[0-9]+" oniguruma_name "${oniguruma_name}")
  install(PROGRAMS "${oniguruma}" DESTINATION "${CMAKE_INSTALL_LIBDIR}" RENAME "${oniguruma_name}")
endif()
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION "${LOCKSTEP_PACKAGE_DIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/lockstep" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.hpp")
install(PROGRAMS "${PROJECT_SOURCE_DIR}/tools/export/lockstep_export.py" DESTINATION "${CMAKE_INSTALL_DATADIR}/lockstep")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/THIRD_PARTY_NOTICES.md"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}")
# The CUDA kernels, compiled: `make package` writes them.
install(DIRECTORY "${PROJECT_BINARY_DIR}/kernels/" DESTINATION "${CMAKE_INSTALL_LIBDIR}/lockstep/kernels" OPTIONAL)
# `make package` and `make docs` write it.
install(DIRECTORY "${PROJECT_BINARY_DIR}/reference/html/" DESTINATION "${CMAKE_INSTALL_DOCDIR}/html" OPTIONAL)
# Packages leave this component out: LibTorch is the target machine's own.
install(CODE "
  set(link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/libtorch\")
  if(IS_SYMLINK \"\${link}\" OR NOT EXISTS \"\${link}\")
    message(STATUS \"Linking: \${link} -> ${LibTorch_ROOT}\")
    file(CREATE_LINK \"${LibTorch_ROOT}\" \"\${link}\" SYMBOLIC)
  endif()" COMPONENT libtorch)

# lockstep_package_config(folder libtorch...): writes lockstepConfig.cmake, which looks for LibTorch in these places.
function(lockstep_package_config folder)
  set(LOCKSTEP_LIBTORCH_PLACES "${ARGN}")
  configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake.in" "${folder}/lockstepConfig.cmake"
    INSTALL_DESTINATION "${LOCKSTEP_PACKAGE_DIR}" NO_CHECK_REQUIRED_COMPONENTS_MACRO)
endfunction()
# Beside the Python package torch, where a wheel is installed, is the second place.
lockstep_package_config("${PROJECT_BINARY_DIR}/package" "\${PACKAGE_PREFIX_DIR}/libtorch" "\${PACKAGE_PREFIX_DIR}/../torch")
# The build folder is a package too: find_package(lockstep) with CMAKE_PREFIX_PATH=build uses the library where it was built.
lockstep_package_config("${PROJECT_BINARY_DIR}" "${LibTorch_ROOT}")
export(EXPORT lockstepTargets NAMESPACE lockstep:: FILE "${PROJECT_BINARY_DIR}/lockstepTargets.cmake")
file(COPY "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake" "${PROJECT_SOURCE_DIR}/cmake/LibTorchSearch.cmake"
  DESTINATION "${PROJECT_BINARY_DIR}")
# Before 1.0 each minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/package/lockstepConfig.cmake" "${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake" "${PROJECT_SOURCE_DIR}/cmake/LibTorchSearch.cmake"
  DESTINATION "${LOCKSTEP_PACKAGE_DIR}")

# `make package`: a tarball and a Debian package by CPack, and a Python wheel by scripts/make_wheel.py.
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_FILE_NAME "lockstep-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_CONTACT "the authors of Lockstep")
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};lockstep;Unspecified;/")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.36), libstdc++6 (>= 12)")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "g++, cmake, ninja-build, nlohmann-json3-dev")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/cmake/debian/postinst" "${PROJECT_SOURCE_DIR}/cmake/debian/prerm")
include(CPack)
