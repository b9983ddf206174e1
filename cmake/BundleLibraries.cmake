# cmake -DPROGRAM=... -P BundleLibraries.cmake: copies the shared libraries that PROGRAM needs and
# that a base system does not have into lib/ beside it.
get_filename_component(folder ${PROGRAM} DIRECTORY)
file(REMOVE_RECURSE ${folder}/lib)  # else the copies of the last time would be found first
file(MAKE_DIRECTORY ${folder}/lib)
# Opened when it is needed (src/hub/curl_library.h).
file(GLOB curl /usr/lib/*/libcurl.so.4 /usr/lib64/libcurl.so.4)
# Of a base system: the C and C++ run-time libraries (Debian's apt itself needs them).
set(base "^(ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libgcc_s|libstdc\\+\\+)[-.]")
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${PROGRAM} LIBRARIES ${curl}
  RESOLVED_DEPENDENCIES_VAR found UNRESOLVED_DEPENDENCIES_VAR missing PRE_EXCLUDE_REGEXES ${base})
if(missing)
  message(FATAL_ERROR "${PROGRAM} needs ${missing}: not found")
endif()
file(COPY ${found} ${curl} DESTINATION ${folder}/lib FOLLOW_SYMLINK_CHAIN)
