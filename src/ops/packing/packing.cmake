# Linear weights as kernels want them: formats, and packing.
ops_room(packing
  SOURCES
    packed_weight.cc matrix_weight.cc float8_weight.cc pack_blocks.cc pack_blocks_baseline.cc pack_blocks_avx512.cc
  TESTS
    packed_weight_test.cc)

ops_compile_for(packing "${avx512_flags}" pack_blocks_avx512.cc)

# The one room that a fuzz target runs.
if(HEADRACE_FUZZ)
  file(GLOB packing_sources RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} packing/*.cc)
  set_property(SOURCE ${packing_sources} APPEND PROPERTY COMPILE_OPTIONS -O1)
endif()
headrace_fuzzer(ops_block_types_fuzz SOURCES packing/block_types_fuzz.cc LINKS headrace_ops)
