/*
 * Builds a kernel in C alone, from a spec filled in by hand, and writes its image: for a host that has its own idea of a
 * deployment and no use for documents. Here a dense model of 32 layers on one part of 80 GB.
 *
 *     make_kernel KERNEL.pkk
 *
 * The figures are round: datasheet peaks (NVIDIA H100 SXM), derated by guesses. They stand for no measurement.
 */
#include <pykernel.h>

#include <stdio.h>

enum { LAYERS = 32, HIDDEN = 4096, HEADS = 32, KV_HEADS = 8, HEAD_DIM = 128, INTERMEDIATE = 14336, VOCABULARY = 128256 };

/* Parameters of one layer: attention's four projections, and the gated feed-forward's three. */
static double layer_parameters(void) {
    double attention = (double)HIDDEN * HEAD_DIM * (2.0 * HEADS + 2.0 * KV_HEADS);
    return attention + 3.0 * HIDDEN * INTERMEDIATE;
}

static void fill_part(pk_spec *spec) {
    spec->tensor_parallel = spec->prefill_context_parallel = spec->decode_context_parallel = 1;
    spec->interleave = 1;
    spec->context_chunk = 8192;
    spec->sm_count = 132;
    spec->peak_flops = 989.4e12;
    spec->hbm_bytes_per_second = 0.85 * 3.35e12;
    spec->link_ratio = 1;
    spec->gemm.law = PK_GEMM_TOKEN_RAMP;
    spec->gemm.eps_max = 0.7;
    spec->gemm.m_half = 100;
    spec->host.uniform_mode = PK_GRAPH_FULL;
    spec->host.other_mode = PK_GRAPH_PIECEWISE;
    spec->host.uniform_width = 1;
    spec->host.segments = spec->host.layers = LAYERS;
    spec->host.capture_tokens = 512;
    spec->host.decode_threshold = 1;
    spec->host.replay_ns = 20000;
    spec->host.eager_layer_ns = 60000;
    spec->host.admission_request_ns = 500000;
    spec->host.admission_token_ns = 100;
    spec->host.output_token_ns = 50000;
}

static void fill_head_and_memory(pk_spec *spec) {
    spec->head.rows = PK_HEAD_SAMPLED_ROWS;
    spec->head.flops_per_row = 2.0 * HIDDEN * VOCABULARY;
    spec->head.bytes = spec->head.stored_bytes = 2.0 * HIDDEN * VOCABULARY;
    spec->memory.device_bytes = (int64_t)80 << 30;
    spec->memory.utilization = 0.9;
    spec->memory.embedding_bytes = 2.0 * HIDDEN * VOCABULARY;
    spec->memory.activation_buffers = 10;
    spec->memory.activation_tokens = 8192;
    spec->memory.activation_width = HIDDEN;
    spec->memory.block = 16;
    spec->memory.in_flight_tokens = 8192;
    spec->links.node_bytes_per_second = 450e9;
    spec->links.fabric_bytes_per_second = 50e9;
    spec->links.handoff_floor_ns = 6000;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: make_kernel KERNEL.pkk\n");
        return 2;
    }
    double parameters = layer_parameters();
    const pk_layer layer = {
        .count = LAYERS,
        .attention_count = 1,
        .dense_flops_per_token = 2 * parameters,
        .dense_bytes = 2 * parameters,
        .elementwise_bytes_per_token = 8.0 * HIDDEN,
        .stored_bytes = 2 * parameters,
    };
    const pk_attention attention = {
        .query_heads = HEADS,
        .head_dim = HEAD_DIM,
        .cache_bytes_per_token = 2.0 * KV_HEADS * HEAD_DIM * 2,
        .one_mixed_launch = 1,
        .read = {.law = PK_READ_ALL},
        .decode = {.law = PK_DECODE_HBM},
        .prefill = {.law = PK_PREFILL_DENSE},
    };
    const pk_cache_group cache = {
        .kind = PK_CACHE_TOKENS,
        .layers = LAYERS,
        .tokens_per_entry = 1,
        .handed_over = 1,
        .block = 16,
        .entry_bytes = 2.0 * KV_HEADS * HEAD_DIM * 2,
    };
    const pk_note notes[] = {{"model", "dense-8b"},
                             {"chip", "h100"},
                             {"engine.max_num_seqs", "256"},
                             {"engine.max_num_batched_tokens", "8192"}};
    pk_spec spec = PK_SPEC_INIT;
    fill_part(&spec);
    fill_head_and_memory(&spec);
    spec.layers = &layer;
    spec.attentions = &attention;
    spec.caches = &cache;
    spec.notes = notes;
    spec.layer_count = spec.attention_count = spec.cache_count = 1;
    spec.note_count = sizeof notes / sizeof notes[0];

    pk_error error = PK_ERROR_INIT;
    pk_kernel *kernel = NULL;
    pk_status status = pk_kernel_new(&spec, &kernel, &error);
    if (status == PK_OK) status = pk_kernel_save_file(kernel, argv[1], &error);
    pk_kernel_free(kernel);
    if (status != PK_OK) fprintf(stderr, "%s: %s\n", error.field, error.message);
    return status != PK_OK;
}
