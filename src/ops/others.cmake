# Every op but the linear family.
list(APPEND sources op.cc kernel_names.cc
  embedding.cc embedding_cpu.cc
  rms_norm.cc rms_norm_cpu.cc rms_norm_cpu_avx512.cc rms_norm_cpu_avx2.cc
  layer_norm.cc layer_norm_cpu.cc residual_add.cc residual_add_cpu.cc soft_cap.cc soft_cap_cpu.cc
  soft_cap_cpu_avx512.cc soft_cap_cpu_avx2.cc
  rope_angles.cc rope_angles_cpu.cc row_gather.cc row_gather_cpu.cc
  rope_attention.cc rope_kv.cc rope_kv_cpu.cc rope_kv_cpu_avx512.cc rope_kv_cpu_avx2.cc
  attention.cc attention_plan.cc attention_cpu.cc attention_tiles.cc
  attention_panels.cc attention_cpu_amx.cc attention_cpu_avx512_bf16.cc
  attention_materialised.cc attention_cpu_materialised.cc attention_cpu_avx512.cc attention_cpu_avx2.cc
  activation.cc activation_cpu.cc activation_cpu_avx512.cc activation_cpu_avx2.cc
  device_sample.cc slot_state.cc null_kernels.cc
  sample.cc sample_row.cc sample_cpu.cc sample_cpu_avx512.cc sample_cpu_avx2.cc)
# Only these files, and the kernels' below, may include gpu/.
headrace_include_root(gpu gpu_root)
set_source_files_properties(attention_page_test.cc attention_plan_test.cc linear_gemv_plan.cc linear_gemv_layout_test.cc linear_resident_plan.cc linear_resident_layout_test.cc linear_wgmma_plan.cc linear_wgmma_layout_test.cc linear_wgmma_protocol_test.cc PROPERTIES INCLUDE_DIRECTORIES ${gpu_root})
if(HEADRACE_CUDA)
  set(kernel_sources
    activation_cuda.cu ceiling_cuda.cu attention_cuda.cu attention_tensor_map.cu
    attention_cuda_d64.cu attention_cuda_d80.cu attention_cuda_d96.cu attention_cuda_d128.cu
    attention_cuda_d256.cu device_sample_block.cu device_sample_cluster.cu device_sample_cuda.cu embedding_cuda.cu layer_norm_cuda.cu
    linear_cuda.cu linear_gemv_cuda.cu linear_resident_cuda.cu linear_stream_cuda.cu linear_wgmma_cuda.cu residual_add_cuda.cu rms_norm_cuda.cu
    rope_angles_cuda.cu rope_attention_cuda.cu rope_attention_cuda_d64.cu rope_attention_cuda_d128.cu
    rope_attention_cuda_d256.cu rope_kv_cuda.cu row_gather_cuda.cu slot_state_cuda.cu soft_cap_cuda.cu
    tensor_map.cu)
  list(APPEND sources ${kernel_sources} linear_fused_cuda.cc)
  # 554: a view of constant bytes has a conversion to its own type that is never called.
  set_source_files_properties(${kernel_sources} PROPERTIES
    INCLUDE_DIRECTORIES ${gpu_root} COMPILE_OPTIONS "-diag-suppress=554")
else()
  list(APPEND sources no_cuda.cc)
endif()

# GCC 12 warns of the undefined operands in its own avx512fintrin.h (GCC bug 105593).
foreach(op rms_norm rope_kv attention activation sample soft_cap)
  set_source_files_properties(${op}_cpu_avx512.cc PROPERTIES
    COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma;-mf16c;-Wno-maybe-uninitialized;-Wno-uninitialized")
  set_source_files_properties(${op}_cpu_avx2.cc PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
endforeach()

set_source_files_properties(attention_cpu_materialised.cc PROPERTIES
  COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma;-mf16c;-Wno-maybe-uninitialized;-Wno-uninitialized")

# linear.cmake's flags; the last file is the first one's kernel on emulated tiles, for tests.
set_source_files_properties(attention_cpu_amx.cc PROPERTIES COMPILE_OPTIONS "${amx_flags}")
set_source_files_properties(attention_cpu_avx512_bf16.cc attention_cpu_amx_emulated.cc PROPERTIES
  COMPILE_OPTIONS "${avx512_flags};-mavx512bf16")

list(APPEND tests op_test.cc kernel_names_test.cc row_ops_cuda_test.cc large_rows_cuda_test.cc nan_rows_cuda_test.cc two_threads_cuda_test.cc rope_kv_cuda_test.cc rope_attention_cuda_test.cc linear_cuda_test.cc device_sample_test.cc
  embedding_test.cc rms_norm_test.cc rope_kv_test.cc attention_test.cc attention_cpu_amx_emulated.cc
  attention_plan_test.cc attention_page_test.cc attention_cuda_test.cc
  activation_test.cc sample_test.cc layer_norm_test.cc residual_add_test.cc rope_angles_test.cc
  soft_cap_test.cc)

if(HEADRACE_CUDA)
  headrace_bench(attention_bench SOURCES ops/attention_bench.cc LINKS headrace_ops CUDA::cudart_static)
  headrace_bench(sample_bench SOURCES ops/sample_bench.cc LINKS headrace_ops CUDA::cudart_static)
endif()

headrace_bench(attention_cpu_bench SOURCES ops/attention_cpu_bench.cc LINKS headrace_ops)
