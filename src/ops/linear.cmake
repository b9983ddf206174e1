list(APPEND sources gated_linear.cc linear.cc linear_cpu.cc linear_cpu_plan.cc linear_cpu_baseline.cc linear_cpu_avx2.cc linear_cpu_avx_vnni.cc
     linear_cpu_avx512.cc linear_cpu_avx512_vnni.cc linear_cpu_vnni_panels.cc
     linear_cpu_avx512_bf16.cc linear_cpu_amx.cc linear_cpu_amx_unpack.cc linear_cpu_float.cc linear_gemv_plan.cc linear_resident_plan.cc linear_wgmma_plan.cc norm_linear.cc residual_linear.cc packed_weight.cc pack_blocks.cc
     pack_blocks_baseline.cc pack_blocks_avx512.cc matrix_weight.cc)
list(APPEND tests linear_test.cc linear_cpu_amx_emulated.cc amx_emulation.cc amx_emulation_test.cc linear_cpu_plan_test.cc linear_gemv_layout_test.cc linear_resident_layout_test.cc linear_wgmma_layout_test.cc norm_linear_test.cc norm_linear_cuda_test.cc residual_linear_test.cc linear_wgmma_protocol_test.cc packed_weight_test.cc)

set(avx2_flags -mavx2 -mfma -mf16c)
# GCC 12 takes the undefined vectors of its own AVX-512 header for a mistake (GCC bug 105593).
set(avx512_flags ${avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized> $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized>)
set_source_files_properties(linear_cpu_avx2.cc PROPERTIES COMPILE_OPTIONS "${avx2_flags}")
set_source_files_properties(linear_cpu_avx_vnni.cc PROPERTIES COMPILE_OPTIONS "${avx2_flags};-mavxvnni")
set_source_files_properties(linear_cpu_avx512.cc pack_blocks_avx512.cc PROPERTIES COMPILE_OPTIONS "${avx512_flags}")
set_source_files_properties(linear_cpu_avx512_vnni.cc linear_cpu_vnni_panels.cc PROPERTIES
                            COMPILE_OPTIONS "${avx512_flags};-mavx512vnni")
set_source_files_properties(linear_cpu_avx512_bf16.cc PROPERTIES
                            COMPILE_OPTIONS "${avx512_flags};-mavx512bf16")
set(amx_flags ${avx512_flags} -mavx512bf16 -mavx512vbmi -mprfchw -mamx-tile -mamx-bf16)
set_source_files_properties(linear_cpu_amx.cc linear_cpu_amx_unpack.cc PROPERTIES COMPILE_OPTIONS "${amx_flags}")
# The same kernels on emulated tiles, for the tests of machines without AMX.
set_source_files_properties(linear_cpu_amx_emulated.cc PROPERTIES
                            COMPILE_OPTIONS "${avx512_flags};-mavx512bf16;-mavx512vbmi;-mprfchw")
set_source_files_properties(amx_emulation.cc PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma")

headrace_bench(linear_bench SOURCES ops/linear_bench.cc LINKS headrace_ops)
headrace_bench(linear_types_bench SOURCES ops/linear_types_bench.cc LINKS headrace_ops)
headrace_bench(linear_amx_bench SOURCES ops/linear_amx_bench.cc ops/linear_amx_variants.cc LINKS headrace_ops)
set_source_files_properties(${CMAKE_SOURCE_DIR}/bench/ops/linear_amx_variants.cc PROPERTIES COMPILE_OPTIONS "${amx_flags}")

headrace_fuzzer(ops_block_types_fuzz SOURCES ops_block_types_fuzz.cc LINKS headrace_ops)

if(HEADRACE_CUDA)
  headrace_bench(linear_cuda_bench SOURCES ops/linear_cuda_bench.cc LINKS headrace_ops CUDA::cudart_static)
endif()
