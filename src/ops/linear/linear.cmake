# y = x W^T, and the ops that a device may make one launch of with it.
ops_room(linear
  SOURCES
    linear.cc linear_cpu.cc lora_linear.cc lora_slot.cc lora_linear_cpu.cc lora_linear_cpu_avx2.cc lora_linear_cpu_avx512.cc
    activated_linear.cc gated_linear.cc grouped_linear.cc grouped_linear_cpu.cc head_linear.cc norm_linear.cc norm_route.cc residual_linear.cc
    cpu_plan.cc cpu_float.cc cpu_baseline.cc cpu_avx2.cc cpu_avx_vnni.cc cpu_avx512.cc cpu_avx512_vnni.cc
    cpu_vnni_panels.cc cpu_avx512_bf16.cc cpu_amx.cc cpu_amx_unpack.cc
    blocks_plan.cc float8_plan.cc gemv_plan.cc grouped_plan.cc resident_plan.cc stream_plan.cc wgmma_plan.cc
  CUDA
    linear_cuda.cc any_cuda.cu blocks_cuda.cu blocks_gemv_cuda.cu blocks_tiles_cuda.cu blocks_wide_cuda.cu exact_cuda.cu few_rows_cuda.cu float8_cuda.cu gemv_cuda.cu grouped_any_cuda.cu grouped_blocks_cuda.cu grouped_cuda.cu head_linear_cuda.cu
    library_cuda.cu lora_linear_cuda.cu norm_route_cuda.cu resident_cuda.cu stream_cuda.cu
    wgmma_cuda.cu
  TESTS
    activated_linear_test.cc activated_linear_cuda_test.cc linear_test.cc linear_fits_test.cc linear_cuda_test.cc float8_cuda_test.cc norm_linear_test.cc norm_linear_cuda_test.cc residual_linear_test.cc
    blocks_gemv_plan_test.cc blocks_tiles_plan_test.cc blocks_tiles_protocol_test.cc blocks_wide_plan_test.cc cpu_plan_test.cc cpu_amx_emulated.cc gemv_layout_test.cc grouped_layout_test.cc
    grouped_linear_test.cc lora_linear_test.cc lora_layout_test.cc lora_linear_cuda_test.cc grouped_linear_cuda_test.cc grouped_protocol_test.cc head_linear_cuda_test.cc norm_route_cuda_test.cc resident_layout_test.cc stream_protocol_test.cc wgmma_layout_test.cc
    wgmma_protocol_test.cc
  GPU_WORDS
    lora_linear.cc lora_slot.cc lora_layout_test.cc
    blocks_plan.cc gemv_plan.cc resident_plan.cc wgmma_plan.cc gemv_layout_test.cc blocks_gemv_plan_test.cc blocks_tiles_plan_test.cc blocks_tiles_protocol_test.cc blocks_wide_plan_test.cc grouped_layout_test.cc grouped_protocol_test.cc
    resident_layout_test.cc stream_protocol_test.cc wgmma_layout_test.cc
    wgmma_protocol_test.cc)

ops_compile_for(linear "${avx2_flags}" cpu_avx2.cc lora_linear_cpu_avx2.cc)
ops_compile_for(linear "${avx2_flags};-mavxvnni" cpu_avx_vnni.cc)
ops_compile_for(linear "${avx512_flags}" cpu_avx512.cc lora_linear_cpu_avx512.cc)
ops_compile_for(linear "${avx512_flags};-mavx512vnni" cpu_avx512_vnni.cc cpu_vnni_panels.cc)
ops_compile_for(linear "${avx512_flags};-mavx512bf16" cpu_avx512_bf16.cc)
ops_compile_for(linear "${amx_flags}" cpu_amx.cc cpu_amx_unpack.cc)
# The same kernels on emulated tiles, for the tests of machines without AMX.
ops_compile_for(linear "${avx512_flags};-mavx512bf16;-mavx512vbmi;-mprfchw" cpu_amx_emulated.cc)

headrace_bench(linear_bench SOURCES ops/linear_bench.cc LINKS headrace_ops)
headrace_bench(linear_types_bench SOURCES ops/linear_types_bench.cc LINKS headrace_ops)
headrace_bench(linear_amx_bench SOURCES ops/linear_amx_bench.cc ops/linear_amx_variants.cc LINKS headrace_ops)
set_source_files_properties(${CMAKE_SOURCE_DIR}/bench/ops/linear_amx_variants.cc PROPERTIES
                            COMPILE_OPTIONS "${amx_flags}")
if(HEADRACE_CUDA)
  headrace_bench(linear_cuda_bench SOURCES ops/linear_cuda_bench.cc LINKS headrace_ops CUDA::cudart_static)
  headrace_bench(experts_bench SOURCES ops/experts_bench.cc LINKS headrace_ops CUDA::cudart_static)
endif()
