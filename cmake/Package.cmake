# headrace_package(target): the program finds its shared libraries in lib/ beside itself, so that
# it starts on machines that have none of the packages it was built with.
function(headrace_package target)
  set_target_properties(${target} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
    BUILD_RPATH "$ORIGIN/lib" INSTALL_RPATH "$ORIGIN/lib")
  # RPATH and not RUNPATH: it is also where the libraries of a library look that is opened later.
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM
    COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:${target}> -DOPENS=libcurl.so.4 -P ${CMAKE_SOURCE_DIR}/cmake/BundleLibraries.cmake)
  install(PROGRAMS $<TARGET_FILE:${target}> DESTINATION .)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/lib DESTINATION .)
endfunction()
