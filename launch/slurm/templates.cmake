# The batch scripts are installed as they are, and are part of the launcher for 'lockstep slurm'.
set(LOCKSTEP_SLURM_TEMPLATES "${PROJECT_BINARY_DIR}/launch/slurm_templates.cpp")
set(templates one-node many-nodes-by-launcher many-nodes-by-srun array requeue elastic explicit-master data-pipeline
  prepare-stage-train)
lockstep_embed_texts(OUTPUT "${LOCKSTEP_SLURM_TEMPLATES}" HEADER slurm/templates.hpp TYPE SlurmTemplate FUNCTION slurm_templates
  FOLDER "${CMAKE_CURRENT_SOURCE_DIR}/slurm/templates" ENDING .sbatch NAMES ${templates})
list(TRANSFORM templates REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/slurm/templates/\\1.sbatch")
install(FILES ${templates} DESTINATION "${CMAKE_INSTALL_DATADIR}/lockstep/slurm")
