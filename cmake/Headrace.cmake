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
  foreach(source ${ARG_SOURCES})
    if(source MATCHES "(^|/)fake_|_(fixture|test|fuzz)[.]")
      message(FATAL_ERROR "headrace_${folder}: ${source} is a test's by its name")
    endif()
  endforeach()
  headrace_include_root(${folder} root)
  add_library(headrace_${folder} STATIC ${ARG_SOURCES})
  target_include_directories(headrace_${folder} PUBLIC ${root})
  target_link_libraries(headrace_${folder} PUBLIC headrace_flags ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  headrace_compile_together(headrace_${folder})
endfunction()

# Compiles eight sources as one. Two thirds of a file's time go to headers and templates that its
# neighbours need too (23 files of sched: 9 s of one core together, 28 one by one). So names in
# anonymous namespaces are unique in a folder, and a test has a namespace of its own. Files with flags
# of their own stay apart (CMake sees to it): kernels for an instruction set, and tests of CUDA's.
function(headrace_compile_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${HEADRACE_UNITY} UNITY_BUILD_BATCH_SIZE 8)
endfunction()

# headrace_test(name SOURCES a_test.cc ... [LINKS lib ...] [LABELS slow ...] [TIMING Suite.Test:Suite.* ...])
# One executable and one ctest entry. Tests are run from the source root. TIMING names the tests that
# look at a clock or talk over sockets with deadlines, as a filter of GoogleTest: they are an entry of
# their own, <name>_timing with the label `timing`, which ./test may try again (nothing else is).
function(headrace_test name)
  if(NOT HEADRACE_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMING" "SOURCES;LINKS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE headrace_flags ${ARG_LINKS} GTest::gtest GTest::gtest_main)
  # -O3 is a third to half of the time that it takes to compile them. Those of whole models run for minutes.
  if(NOT name MATCHES "^(golden|tiny_engine)_test$")
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
    headrace_compile_together(${name})
  endif()
  set(others "")
  if(ARG_TIMING)
    set(others --gtest_filter=-${ARG_TIMING})
    add_test(NAME ${name}_timing COMMAND ${name} --gtest_filter=${ARG_TIMING} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    # GTEST_OUTPUT names a folder: both entries are of one program, which names its report there.
    set_tests_properties(${name}_timing PROPERTIES LABELS "timing;${ARG_LABELS}"
      ENVIRONMENT_MODIFICATION "GTEST_OUTPUT=string_append:${name}_timing.xml")
  endif()
  add_test(NAME ${name} COMMAND ${name} ${others} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(ARG_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
  endif()
endfunction()

# headrace_fuzzer(name SOURCES a_fuzz.cc [LINKS lib ...]): a libFuzzer target, built only with the
# `asan` preset (clang), into fuzz/ of the build folder; target `fuzzers` builds them all. The source
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

# headrace_bench(name SOURCES a_bench.cc ... [LINKS lib ...]): a program of bench/, built by its name or by
# the target `benches`, which ./test builds so that they go on compiling.
function(headrace_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  list(TRANSFORM ARG_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/bench/)
  add_executable(${name} EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINKS})
  if(NOT TARGET benches)
    add_custom_target(benches)
  endif()
  add_dependencies(benches ${name})
endfunction()

# For code that runs once or rarely: a library, or its sources whose names match a pattern. These are
# compiled together too, apart from the others, and are part of the library as before.
function(headrace_optimise_for_size name)
  set(library headrace_${name})
  if(ARGC EQUAL 1)
    target_compile_options(${library} PRIVATE $<$<CONFIG:Release>:-Os>)
    return()
  endif()
  get_target_property(others ${library} SOURCES)
  set(small ${others})
  list(FILTER small INCLUDE REGEX "${ARGV1}")
  list(FILTER others EXCLUDE REGEX "${ARGV1}")
  get_target_property(links ${library} LINK_LIBRARIES)
  add_library(${library}_small OBJECT ${small})
  target_link_libraries(${library}_small PRIVATE ${links})
  target_include_directories(${library}_small PRIVATE ${HEADRACE_INCLUDE_ROOT}/${name})
  target_compile_definitions(${library}_small PRIVATE $<TARGET_PROPERTY:${library},COMPILE_DEFINITIONS>)
  target_compile_options(${library}_small PRIVATE $<$<CONFIG:Release>:-Os>)
  headrace_compile_together(${library}_small)
  set_property(TARGET ${library} PROPERTY SOURCES ${others} $<TARGET_OBJECTS:${library}_small>)
endfunction()
