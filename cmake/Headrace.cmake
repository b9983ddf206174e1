# One library per folder of src/. A folder's headers are reachable only through the target that
# owns them (each target exports an include root that holds a link to that one folder), so an
# include that the map in docs/architecture.md does not allow does not compile.

set(HEADRACE_INCLUDE_ROOT ${CMAKE_BINARY_DIR}/include)

function(headrace_include_root folder out)
  set(root ${HEADRACE_INCLUDE_ROOT}/${folder})
  file(MAKE_DIRECTORY ${root})
  if(NOT EXISTS ${root}/${folder})
    file(CREATE_LINK ${CMAKE_SOURCE_DIR}/src/${folder} ${root}/${folder} SYMBOLIC)
  endif()
  set(${out} ${root} PARENT_SCOPE)
endfunction()

# headrace_library(folder SOURCES a.cc ... [PUBLIC lib ...] [PRIVATE lib ...])
function(headrace_library folder)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  headrace_include_root(${folder} root)
  add_library(headrace_${folder} STATIC ${ARG_SOURCES})
  target_include_directories(headrace_${folder} PUBLIC ${root})
  target_link_libraries(headrace_${folder} PUBLIC headrace_flags ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
endfunction()

# headrace_test(name SOURCES a_test.cc ... [LINKS lib ...] [LABELS quick|slow ...])
# One executable and one ctest entry. Tests are run from the source root.
function(headrace_test name)
  if(NOT HEADRACE_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE headrace_flags ${ARG_LINKS} GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(ARG_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
  endif()
endfunction()

# headrace_fuzzer(name SOURCES a_fuzz.cc [LINKS lib ...]): a libFuzzer target, built only with the
# `fuzz` preset (clang), into fuzz/ of the build folder; target `fuzzers` builds them all. The source
# defines LLVMFuzzerTestOneInput; seeds are committed in tests/fuzz/corpus/<name>/.
function(headrace_fuzzer name)
  if(NOT HEADRACE_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE headrace_flags ${ARG_LINKS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers)
  endif()
  add_dependencies(fuzzers ${name})
endfunction()

# Sources of a library whose names match, for code that runs once or rarely.
function(headrace_optimise_for_size name regex)
  get_target_property(sources headrace_${name} SOURCES)
  list(FILTER sources INCLUDE REGEX "${regex}")
  set_property(SOURCE ${sources} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-Os>)
endfunction()
