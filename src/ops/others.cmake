# Every op but the linear family.
list(APPEND sources
  embedding.cc embedding_cpu.cc
  rms_norm.cc rms_norm_cpu.cc
  rope_kv.cc rope_kv_cpu.cc
  attention.cc attention_cpu.cc
  activation.cc activation_cpu.cc
  sample.cc sample_row.cc sample_cpu.cc)
list(APPEND sources rms_norm_no_cuda.cc)
