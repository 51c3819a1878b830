#include "device/cpu/reference.h"

#include "device/cpu/cpu.h"

void tri_cpu_reference_kernels(tri_kernels *table)
{
  *table = (tri_kernels){
      .fill = tri_cpu_fill,
      .convert = tri_cpu_convert,
      .add = tri_cpu_add,
      .sum_squares = tri_cpu_sum_squares,
      .sum = tri_cpu_sum,
      .embedding_forward = tri_cpu_embedding_forward,
      .embedding_backward = tri_cpu_embedding_backward,
      .positions_forward = tri_cpu_positions_forward,
      .positions_backward = tri_cpu_positions_backward,
      .layernorm_forward = tri_cpu_layernorm_forward,
      .residual_layernorm_forward = tri_cpu_residual_layernorm_forward,
      .residual_forward = tri_cpu_residual_forward,
      .residual_backward = tri_cpu_residual_backward,
      .layernorm_backward = tri_cpu_layernorm_backward,
      .linear_prepare = tri_cpu_linear_prepare,
      .linear_forward = tri_cpu_linear_forward,
      .linear_backward_input = tri_cpu_linear_backward_input,
      .linear_backward_weight = tri_cpu_linear_backward_weight,
      .attention_forward = tri_cpu_attention_forward,
      .attention_backward = tri_cpu_attention_backward,
      .attention_decode = tri_cpu_attention_decode,
      .cross_entropy_forward = tri_cpu_cross_entropy_forward,
      .cross_entropy_backward = tri_cpu_cross_entropy_backward,
      .cross_entropy_statistics = tri_cpu_cross_entropy_statistics,
      .cross_entropy_combine = tri_cpu_cross_entropy_combine,
      .cross_entropy_gradient = tri_cpu_cross_entropy_gradient,
      .adamw = tri_cpu_adamw,
  };
}
