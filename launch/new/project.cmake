# examples/custom_trainer is part of the launcher, for 'lockstep new'.
set(LOCKSTEP_NEW_PROJECT "${PROJECT_BINARY_DIR}/launch/new_project.cpp")
lockstep_embed_texts(OUTPUT "${LOCKSTEP_NEW_PROJECT}" HEADER new/project.hpp TYPE ProjectFile FUNCTION project_files
  FOLDER "${PROJECT_SOURCE_DIR}/examples/custom_trainer" NAMES CMakeLists.txt README.md train.sbatch trainer.cpp)
