#include "trireme/parallel/traffic.h"

enum { SUM_BYTES = 4 }; // f32

int64_t tri_traffic_all_gather(int n_ranks, int64_t own_bytes)
{
  return (n_ranks - 1) * own_bytes;
}

int64_t tri_traffic_reduce_scatter(int64_t all_bytes, int64_t own_bytes)
{
  return all_bytes - own_bytes;
}

int64_t tri_traffic_all_reduce(int n_ranks, int64_t all_bytes, int64_t own_bytes)
{
  return tri_traffic_reduce_scatter(all_bytes, own_bytes) +
         tri_traffic_all_gather(n_ranks, own_bytes);
}

int64_t tri_traffic_of_replicas(const tri_traffic_replicas *t)
{
  if (t->n_ranks == 1) return 0;
  const int64_t scatter =
      t->n_sums * tri_traffic_reduce_scatter(SUM_BYTES * t->n_elements, SUM_BYTES * t->n_owned);
  if (t->zero == 0) return scatter + tri_traffic_all_gather(t->n_ranks, SUM_BYTES * t->n_owned);
  const int64_t weights = t->weight_bytes * (t->zero == 3 ? t->n_gathered : t->n_owned - t->n_tied);
  const int64_t sums = t->tied_whole ? SUM_BYTES * t->n_tied : 0;
  return scatter + tri_traffic_all_gather(t->n_ranks, weights) +
         tri_traffic_all_gather(t->n_ranks, sums);
}

int64_t tri_traffic_of_pipeline(const tri_traffic_pipeline *t)
{
  if (t->n_stages == 1) return 0;
  const bool is_first = t->stage == 0, is_last = t->stage == t->n_stages - 1;
  // Of the chunks, the first virtual stage sends no gradient, the last no activations.
  const int64_t n_messages = (t->n_virtual - is_last) + (t->n_virtual - is_first);
  return t->n_microbatches * n_messages * t->message_bytes +
         (is_first || is_last ? t->tied_bytes : 0);
}

int64_t tri_traffic_of_tensor(const tri_traffic_tensor *t)
{
  if (t->n_ranks == 1) return 0;
  const int64_t n_pairs = 4 * (int64_t)t->n_blocks + t->embedding + t->head;
  const int64_t gather =
      tri_traffic_all_gather(t->n_ranks, t->n_owned * t->width * t->gather_bytes);
  const int64_t sum = tri_traffic_reduce_scatter(t->n_rows * t->width * t->sum_bytes,
                                                 t->n_owned * t->width * t->sum_bytes);
  const int64_t loss = t->head ? tri_traffic_all_gather(t->n_ranks, 3 * SUM_BYTES * t->n_rows) : 0;
  return t->n_microbatches * (n_pairs * (gather + sum) + loss);
}

int64_t tri_traffic_of_context(const tri_traffic_context *t)
{
  if (t->n_ranks == 1) return 0;
  const int64_t n_elements = t->n_rows * t->width, hops = t->n_ranks - 1;
  const int64_t forward = hops * n_elements * t->weight_bytes;
  const int64_t backward = forward + (hops + 1) * n_elements * SUM_BYTES;
  return (int64_t)t->n_microbatches * t->n_blocks * (forward + backward);
}
