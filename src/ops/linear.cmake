list(APPEND sources linear.cc linear_cpu.cc packed_weight.cc)
