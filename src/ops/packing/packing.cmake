# Linear weights as kernels want them: formats, and packing.
ops_room(packing
  SOURCES
    packed_weight.cc matrix_weight.cc pack_blocks.cc pack_blocks_baseline.cc pack_blocks_avx512.cc
  TESTS
    packed_weight_test.cc)

ops_compile_for(packing "${avx512_flags}" pack_blocks_avx512.cc)

headrace_fuzzer(ops_block_types_fuzz SOURCES packing/block_types_fuzz.cc LINKS headrace_ops)
