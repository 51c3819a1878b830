#include "trireme/tensor/dtype.h"

size_t tri_dtype_size(tri_dtype dtype)
{
  switch (dtype) {
  case TRI_DTYPE_F32:
  case TRI_DTYPE_I32: return 4;
  case TRI_DTYPE_BF16:
  case TRI_DTYPE_U16: return 2;
  case TRI_DTYPE_F64: return 8;
  }
  return 0;
}

const char *tri_dtype_name(tri_dtype dtype)
{
  switch (dtype) {
  case TRI_DTYPE_F32: return "f32";
  case TRI_DTYPE_BF16: return "bf16";
  case TRI_DTYPE_F64: return "f64";
  case TRI_DTYPE_I32: return "i32";
  case TRI_DTYPE_U16: return "u16";
  }
  return "?";
}
