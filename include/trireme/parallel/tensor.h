// Tensor parallelism: the ranks of one tensor group hold the shares of one copy of the model
// (nn/model.h), and this is what goes between them: rows of hidden states gathered before split
// layers and summed after them (Megatron-LM: Shoeybi et al. 2019; with rows split in between,
// sequence parallelism: Korthikanti et al. 2022).
//
// Sums are taken in the order of the ranks, in f32, and rounded once: the bits depend on the number
// of shares, and on nothing else.
#pragma once

#include "trireme/comm/transport.h"
#include "trireme/nn/model.h"
#include "trireme/parallel/owned_range.h"

typedef struct tri_tensor tri_tensor;

// Allocates what passes of up to `largest` elements a rank need (n of the seams, of the model's
// type or f32). Collective on the transport's communicator, errors agree.
//   transport  of the tensor group, rank = share; borrowed, destroyed before this
//   stream     that passes are queued on; borrowed
//   out        owned: tri_tensor_destroy
TRI_MUST_CHECK tri_status tri_tensor_create(tri_transport *transport, tri_stream *stream,
                                            int64_t largest, tri_tensor **out);
void tri_tensor_destroy(tri_tensor **tensor); // NULL-safe

// What a pass is given. Borrowed.
const tri_seams *tri_tensor_seams(const tri_tensor *tensor);

// Gradients of arrays that all shares hold whole, of which each has an addend
// (tri_parameter.partial_gradient), become their sum on all ranks, in the owned ranges (n), which
// are the same on all: `gradients` holds them at gradient_at. Collective; no-op on NULL.
TRI_MUST_CHECK tri_status tri_tensor_sum_gradients(tri_tensor *tensor,
                                                   const tri_parameters *parameters,
                                                   const tri_owned_range *owned, int n_owned,
                                                   float *gradients);

size_t tri_tensor_memory_bytes(const tri_tensor *tensor); // 0 for NULL
