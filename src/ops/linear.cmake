# y = x W^T, and the ops that a device may make one launch of with it.
ops_room(linear
  SOURCES
    linear.cc linear_cpu.cc gated_linear.cc norm_linear.cc residual_linear.cc
    linear_cpu_plan.cc linear_cpu_float.cc linear_cpu_baseline.cc linear_cpu_avx2.cc linear_cpu_avx_vnni.cc linear_cpu_avx512.cc linear_cpu_avx512_vnni.cc
    linear_cpu_vnni_panels.cc linear_cpu_avx512_bf16.cc linear_cpu_amx.cc linear_cpu_amx_unpack.cc
    linear_gemv_plan.cc linear_resident_plan.cc linear_wgmma_plan.cc
  CUDA
    linear_cuda.cu linear_fused_cuda.cc linear_gemv_cuda.cu linear_resident_cuda.cu linear_stream_cuda.cu linear_wgmma_cuda.cu
  TESTS
    linear_test.cc linear_cuda_test.cc norm_linear_test.cc norm_linear_cuda_test.cc residual_linear_test.cc
    linear_cpu_plan_test.cc linear_cpu_amx_emulated.cc linear_gemv_layout_test.cc linear_resident_layout_test.cc linear_wgmma_layout_test.cc
    linear_wgmma_protocol_test.cc
  GPU_WORDS
    linear_gemv_plan.cc linear_resident_plan.cc linear_wgmma_plan.cc linear_gemv_layout_test.cc linear_resident_layout_test.cc linear_wgmma_layout_test.cc
    linear_wgmma_protocol_test.cc)

ops_compile_for(linear "${avx2_flags}" linear_cpu_avx2.cc)
ops_compile_for(linear "${avx2_flags};-mavxvnni" linear_cpu_avx_vnni.cc)
ops_compile_for(linear "${avx512_flags}" linear_cpu_avx512.cc)
ops_compile_for(linear "${avx512_flags};-mavx512vnni" linear_cpu_avx512_vnni.cc linear_cpu_vnni_panels.cc)
ops_compile_for(linear "${avx512_flags};-mavx512bf16" linear_cpu_avx512_bf16.cc)
ops_compile_for(linear "${amx_flags}" linear_cpu_amx.cc linear_cpu_amx_unpack.cc)
# The same kernels on emulated tiles, for the tests of machines without AMX.
ops_compile_for(linear "${avx512_flags};-mavx512bf16;-mavx512vbmi;-mprfchw" linear_cpu_amx_emulated.cc)

headrace_bench(linear_bench SOURCES ops/linear_bench.cc LINKS headrace_ops)
headrace_bench(linear_types_bench SOURCES ops/linear_types_bench.cc LINKS headrace_ops)
headrace_bench(linear_amx_bench SOURCES ops/linear_amx_bench.cc ops/linear_amx_variants.cc LINKS headrace_ops)
set_source_files_properties(${CMAKE_SOURCE_DIR}/bench/ops/linear_amx_variants.cc PROPERTIES
                            COMPILE_OPTIONS "${amx_flags}")
if(HEADRACE_CUDA)
  headrace_bench(linear_cuda_bench SOURCES ops/linear_cuda_bench.cc LINKS headrace_ops CUDA::cudart_static)
endif()
