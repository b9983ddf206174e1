# Ops that take rows one by one.
ops_room(rows
  SOURCES
    activation.cc activation_cpu.cc activation_cpu_avx2.cc activation_cpu_avx512.cc altup.cc altup_cpu.cc cut_gates.cc cut_gates_cpu.cc
    embedding.cc embedding_cpu.cc hyper_connection.cc hyper_connection_cpu.cc match_size.cc match_size_cpu.cc
    gated_norm.cc gated_norm_cpu.cc gated_norm_cpu_avx2.cc gated_norm_cpu_avx512.cc
    layer_norm.cc layer_norm_cpu.cc layer_norm_cpu_avx2.cc layer_norm_cpu_avx512.cc norm_add.cc norm_add_cpu.cc residual_add.cc residual_add_cpu.cc
    rms_norm.cc rms_norm_cpu.cc rms_norm_cpu_avx2.cc rms_norm_cpu_avx512.cc rope_angles.cc rope_angles_cpu.cc rotate_tails.cc rotate_tails_cpu.cc
    route_experts.cc route_experts_cpu.cc row_gather.cc row_gather_cpu.cc row_gather_sum.cc row_gather_sum_cpu.cc row_scatter_add.cc row_scatter_add_cpu.cc
    scale_queries.cc scale_queries_cpu.cc scale_rows.cc scale_rows_cpu.cc
    sigmoid_gate.cc sigmoid_gate_cpu.cc sigmoid_gate_cpu_avx2.cc sigmoid_gate_cpu_avx512.cc
    soft_cap.cc soft_cap_cpu.cc soft_cap_cpu_avx2.cc soft_cap_cpu_avx512.cc
  CUDA
    activation_cuda.cu altup_cuda.cu cut_gates_cuda.cu embedding_cuda.cu match_size_cuda.cu gated_norm_cuda.cu layer_norm_cuda.cu norm_add_cuda.cu residual_add_cuda.cu rms_norm_cuda.cu
    rope_angles_cuda.cu route_experts_cuda.cu row_gather_cuda.cu row_gather_sum_cuda.cu scale_queries_cuda.cu scale_rows_cuda.cu sigmoid_gate_cuda.cu soft_cap_cuda.cu
  TESTS
    activation_test.cc altup_test.cc cut_gates_test.cc embedding_test.cc frame_ops_cuda_test.cc hyper_connection_test.cc match_size_test.cc gated_norm_test.cc layer_norm_test.cc norm_add_test.cc residual_add_test.cc rms_norm_test.cc
    rope_angles_test.cc rotate_tails_test.cc route_experts_test.cc route_experts_cuda_test.cc row_gather_sum_test.cc row_scatter_add_test.cc row_ops_cuda_test.cc scale_queries_test.cc scale_rows_test.cc sigmoid_gate_test.cc soft_cap_test.cc)

foreach(op activation gated_norm layer_norm rms_norm sigmoid_gate soft_cap)
  ops_compile_for(rows "${avx2_flags}" ${op}_cpu_avx2.cc)
  ops_compile_for(rows "${avx512_flags}" ${op}_cpu_avx512.cc)
endforeach()
