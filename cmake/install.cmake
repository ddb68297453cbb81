# Installs the library, public headers, programs, CMake package and pkg-config file. Installations are relocatable.
include(CMakePackageConfigHelpers)

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/dorajit" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
if(DORAJIT_INSTALL_DLPACK)
  install(FILES "${DORAJIT_dlpack_INCLUDE_DIR}/dlpack/dlpack.h"
          DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/dlpack")
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${DORAJIT_NOTICES}"
        DESTINATION "${CMAKE_INSTALL_DOCDIR}")
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR BASE_DIRECTORY "${CMAKE_INSTALL_FULL_DOCDIR}"
           OUTPUT_VARIABLE headers_from_docs)
install(CODE "
  set(SOURCE \"${PROJECT_SOURCE_DIR}\")
  set(OUTPUT \"${PROJECT_BINARY_DIR}/installed_docs\")
  set(HEADERS \"${headers_from_docs}\")
  include(\"${PROJECT_SOURCE_DIR}/cmake/installed_docs.cmake\")")
install(DIRECTORY "${PROJECT_BINARY_DIR}/installed_docs/" DESTINATION "${CMAKE_INSTALL_DOCDIR}")

foreach(program dorajit_cli dorajitd)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
    # bash looks for a file with the name of the program.
    install(FILES "${PROJECT_SOURCE_DIR}/apps/cli/completion.bash" RENAME $<TARGET_FILE_NAME:${program}>
            DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
  endif()
endforeach()
if(TARGET dorajitd)
  # A unit contains the absolute path of its program, which is only known at installation.
  install(CODE "
    set(bindir \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
    set(docdir \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}\")
    foreach(unit dorajitd.service dorajitd.socket)
      configure_file(\"${PROJECT_SOURCE_DIR}/apps/daemon/systemd/\${unit}.in\"
        \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/user/\${unit}\" @ONLY)
    endforeach()")
endif()

if(TARGET dorajit)
  set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/dorajit")
  install(TARGETS dorajit EXPORT dorajitTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(EXPORT dorajitTargets NAMESPACE dorajit:: DESTINATION "${package_dir}")
  configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/dorajitConfig.cmake.in"
    "${PROJECT_BINARY_DIR}/dorajitConfig.cmake" INSTALL_DESTINATION "${package_dir}"
    NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/dorajitConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/dorajitConfig.cmake"
                "${PROJECT_BINARY_DIR}/dorajitConfigVersion.cmake" DESTINATION "${package_dir}")

  set(pkgconfig_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
             BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}/${pkgconfig_dir}"
             OUTPUT_VARIABLE prefix_from_pkgconfig)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/dorajit.pc.in" "${PROJECT_BINARY_DIR}/dorajit.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/dorajit.pc" DESTINATION "${pkgconfig_dir}")
endif()
