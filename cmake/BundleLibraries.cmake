# cmake -DPROGRAM=... [-DOPENS=...] -P BundleLibraries.cmake: copies the shared libraries that
# PROGRAM needs, and those that it OPENS when they are needed (src/hub/curl_library.h), and that a
# base system does not have, into lib/ beside it.
get_filename_component(folder ${PROGRAM} DIRECTORY)
file(REMOVE_RECURSE ${folder}/lib)  # else the copies of the last time would be found first
file(MAKE_DIRECTORY ${folder}/lib)
set(opened "")
foreach(name ${OPENS})
  file(GLOB paths /usr/lib/*/${name} /usr/lib64/${name})
  list(APPEND opened ${paths})
endforeach()
# Of a base system: the C and C++ run-time libraries (Debian's apt itself needs them).
set(base "^(ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libgcc_s|libstdc\\+\\+)[-.]")
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${PROGRAM} LIBRARIES ${opened}
  RESOLVED_DEPENDENCIES_VAR found UNRESOLVED_DEPENDENCIES_VAR missing PRE_EXCLUDE_REGEXES ${base}
  CONFLICTING_DEPENDENCIES_PREFIX twice)
# What is there in a folder of its own and in the system's, as on a machine with scripts/gpu_deps: the first of both.
foreach(name ${twice_FILENAMES})
  list(GET twice_${name} 0 first)
  list(APPEND found ${first})
endforeach()
if(missing)
  message(FATAL_ERROR "${PROGRAM} needs ${missing}: not found")
endif()
# Each under the name by which it is looked for, without a link: a wheel holds none.
foreach(library ${found} ${opened})
  get_filename_component(name ${library} NAME)
  file(COPY_FILE ${library} ${folder}/lib/${name})
endforeach()
