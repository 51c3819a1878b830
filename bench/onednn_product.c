#include "onednn_product.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>

struct onednn_product {
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_t primitive;
  dnnl_memory_t a, b, c;
};

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t description;

static bool describe(description *out, int64_t rows, int64_t columns, int64_t row, int64_t column)
{
  const dnnl_dims_t sizes = {rows, columns}, strides = {row, column};
  return dnnl_memory_desc_create_with_strides(out, 2, sizes, dnnl_f32, strides) == dnnl_success;
}

static bool add_to_result(dnnl_post_ops_t operations)
{
  return dnnl_post_ops_append_sum(operations, 1.0f, 0, dnnl_data_type_undef) == dnnl_success;
}

static bool describe_product(dnnl_primitive_desc_t *out, dnnl_engine_t engine, description a,
                             description b, description c, dnnl_primitive_attr_t how)
{
  return dnnl_matmul_primitive_desc_create(out, engine, a, b, NULL, c, how) == dnnl_success;
}

static bool take(dnnl_memory_t *out, description of, dnnl_engine_t engine)
{
  return dnnl_memory_create(out, of, engine, DNNL_MEMORY_NONE) == dnnl_success;
}

static void forget(description it)
{
  dnnl_memory_desc_destroy(it);
}
#else
typedef struct description {
  dnnl_memory_desc_t it;
} description;

static bool describe(description *out, int64_t rows, int64_t columns, int64_t row, int64_t column)
{
  const dnnl_dims_t sizes = {rows, columns}, strides = {row, column};
  return dnnl_memory_desc_init_by_strides(&out->it, 2, sizes, dnnl_f32, strides) == dnnl_success;
}

static bool add_to_result(dnnl_post_ops_t operations)
{
  return dnnl_post_ops_append_sum(operations, 1.0f) == dnnl_success;
}

static bool describe_product(dnnl_primitive_desc_t *out, dnnl_engine_t engine, description a,
                             description b, description c, dnnl_primitive_attr_t how)
{
  dnnl_matmul_desc_t product;
  return dnnl_matmul_desc_init(&product, &a.it, &b.it, NULL, &c.it) == dnnl_success &&
         dnnl_primitive_desc_create(out, &product, how, engine, NULL) == dnnl_success;
}

static bool take(dnnl_memory_t *out, description of, dnnl_engine_t engine)
{
  return dnnl_memory_create(out, &of.it, engine, DNNL_MEMORY_NONE) == dnnl_success;
}

static void forget(description it)
{
  (void)it;
}
#endif

static bool make_primitive(onednn_product *p, description a, description b, description c, bool add)
{
  dnnl_post_ops_t operations = NULL;
  dnnl_primitive_attr_t how = NULL;
  dnnl_primitive_desc_t made = NULL;
  bool good = dnnl_primitive_attr_create(&how) == dnnl_success &&
              dnnl_post_ops_create(&operations) == dnnl_success;
  if (good && add)
    good = add_to_result(operations) &&
           dnnl_primitive_attr_set_post_ops(how, operations) == dnnl_success;
  good = good && describe_product(&made, p->engine, a, b, c, how) &&
         dnnl_primitive_create(&p->primitive, made) == dnnl_success;
  if (made != NULL) dnnl_primitive_desc_destroy(made);
  if (operations != NULL) dnnl_post_ops_destroy(operations);
  if (how != NULL) dnnl_primitive_attr_destroy(how);
  return good;
}

onednn_product *onednn_product_create(int64_t M, int64_t N, int64_t K, int64_t a_row,
                                      int64_t a_column, int64_t b_row, int64_t b_column, bool add)
{
  onednn_product *p = calloc(1, sizeof *p);
  if (p == NULL) return NULL;
  description a, b, c;
  bool good = dnnl_engine_create(&p->engine, dnnl_cpu, 0) == dnnl_success &&
              dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags) == dnnl_success;
  if (good && describe(&a, M, K, a_row, a_column)) {
    if (describe(&b, K, N, b_row, b_column)) {
      if (describe(&c, M, N, N, 1)) {
        good = make_primitive(p, a, b, c, add) && take(&p->a, a, p->engine) &&
               take(&p->b, b, p->engine) && take(&p->c, c, p->engine);
        forget(c);
      }
      forget(b);
    }
    forget(a);
  }
  if (good && p->c != NULL) return p;
  onednn_product_destroy(p);
  return NULL;
}

bool onednn_product_run(onednn_product *p, float *c, float *a, float *b)
{
  const dnnl_exec_arg_t arguments[] = {
      {DNNL_ARG_SRC, p->a}, {DNNL_ARG_WEIGHTS, p->b}, {DNNL_ARG_DST, p->c}};
  return dnnl_memory_set_data_handle(p->a, a) == dnnl_success &&
         dnnl_memory_set_data_handle(p->b, b) == dnnl_success &&
         dnnl_memory_set_data_handle(p->c, c) == dnnl_success &&
         dnnl_primitive_execute(p->primitive, p->stream, 3, arguments) == dnnl_success &&
         dnnl_stream_wait(p->stream) == dnnl_success;
}

void onednn_product_destroy(onednn_product *p)
{
  if (p == NULL) return;
  if (p->a != NULL) dnnl_memory_destroy(p->a);
  if (p->b != NULL) dnnl_memory_destroy(p->b);
  if (p->c != NULL) dnnl_memory_destroy(p->c);
  if (p->primitive != NULL) dnnl_primitive_destroy(p->primitive);
  if (p->stream != NULL) dnnl_stream_destroy(p->stream);
  if (p->engine != NULL) dnnl_engine_destroy(p->engine);
  free(p);
}
