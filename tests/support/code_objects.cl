__constant float table[5] = {1.0f, 2.5f, -3.0f, 4.0f, 8.5f};

__kernel __attribute__((reqd_work_group_size(64, 2, 1))) void one(__global float* restrict x, const __global int* n,
                                                                  float a, __local float* l) {
  l[get_local_id(0)] = x[get_global_id(0)] * a + table[n[1] % 5];
  barrier(CLK_LOCAL_MEM_FENCE);
  x[get_global_id(1)] = l[get_local_id(1)] + n[get_group_id(0)];
}

__kernel void two(__global float* x) {
  __local float b[333];
  float p[40];
  for (int i = 0; i < 40; i++) p[i] = x[i];
  b[get_local_id(0)] = p[(int)x[0] % 40];
  barrier(CLK_LOCAL_MEM_FENCE);
  x[get_global_id(0)] = b[(get_local_id(0) + 17) % 333] + table[(int)x[1] % 5];
}
