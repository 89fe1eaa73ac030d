/* Memory and transfers from C: the functions are the laws of the header, and their arguments are checked. */
#include "check.h"
#include "example.h"

#include <string.h>

static void fixed_bytes_are_the_sum_of_their_parts(void) {
    pk_kernel *kernel = check_example_kernel();
    pk_memory_breakdown fixed = PK_MEMORY_BREAKDOWN_INIT;
    CHECK(pk_fixed_bytes(kernel, &fixed, NULL) == PK_OK);
    CHECK(fixed.activation_peak == (int64_t)10 * 8192 * 7168 * 2);
    CHECK(fixed.cuda_graph == 858783744);
    CHECK(fixed.comm_buffers == 0);
    CHECK(pk_pre_snapshot_bytes(kernel) == 411041792 + INT64_C(3758096384));
    CHECK(fixed.eplb_redundant == 17 * INT64_C(47000000)); /* 16 replicas on 16 ranks, one expert a rank and layer */
    CHECK(fixed.weights == (INT64_C(1900000000) + 1000000000 + 3 * INT64_C(540000000)) / 4 + 3 * 3000000 +
                               17 * INT64_C(47000000) * 7);
    CHECK(fixed.total == fixed.weights + fixed.activation_peak + fixed.cuda_graph + fixed.eplb_redundant);
    pk_kernel_free(kernel);
}

static void sequences_are_paged_windowed_and_bounded(void) {
    pk_kernel *kernel = check_example_kernel();
    /* One page of each group, and a page and a half of checkpoint state twice. */
    int64_t page = 3 * 576 * 16 + 17 * 2048 * 16 / 4;
    CHECK(pk_sequence_variable_bytes(kernel, 1) == page + 199);
    CHECK(pk_sequence_variable_bytes(kernel, 16) == page + 199);
    CHECK(pk_sequence_variable_bytes(kernel, 64) == page + 5 * 995 / 10); /* four ranks share 64 tokens: one page */
    CHECK(pk_sequence_variable_bytes(kernel, 0) == 0);
    CHECK(pk_sequence_variable_bytes(kernel, -1) == 0);
    CHECK(pk_sequence_variable_bytes(kernel, INT64_MAX) == INT64_MAX);
    int64_t state = 2 * 3 * 1062400, ring_page = 2 * 64 * 6565 / 10;
    CHECK(pk_sequence_bounded_bytes(kernel, 2) == state + (1001 / 64 + 1 + 1) * ring_page);
    CHECK(pk_sequence_fixed_bytes(kernel) == pk_sequence_bounded_bytes(kernel, 2));
    CHECK(pk_sequence_admission_bytes(kernel) == pk_sequence_bounded_bytes(kernel, 16384));
    CHECK(pk_sequence_bounded_bytes_at(kernel, 0, 0) == state);
    CHECK(pk_sequence_bounded_bytes_at(kernel, -7, -7) == state);
    CHECK(pk_sequence_bounded_bytes_at(kernel, 1, 64) == state + 2 * ring_page);
    CHECK(pk_sequence_bounded_bytes(kernel, INT64_MAX) == state + (131072 / 64 + 1) * ring_page);
    CHECK(pk_max_tokens_for(kernel, pk_sequence_variable_bytes(kernel, 999)) >= 999);
    CHECK(pk_max_tokens_for(kernel, 0) == 0);
    CHECK(pk_max_tokens_for(kernel, -1) == 0);
    pk_kernel_free(kernel);
}

static void capacity_fills_what_the_fixed_bytes_leave(void) {
    pk_kernel *kernel = check_example_kernel();
    pk_memory_breakdown fixed = PK_MEMORY_BREAKDOWN_INIT;
    pk_capacity capacity = PK_CAPACITY_INIT;
    pk_error error = PK_ERROR_INIT;
    CHECK(pk_fixed_bytes(kernel, &fixed, NULL) == PK_OK);
    CHECK(pk_kv_capacity(kernel, 0, 0, 0, &capacity, &error) == PK_OK);
    CHECK(capacity.device_bytes == (int64_t)141 << 30);
    CHECK(capacity.bytes == capacity.budget_bytes - fixed.total);
    CHECK(capacity.block_tokens == 64 && capacity.blocks == capacity.bytes / capacity.block_bytes);
    CHECK(capacity.tokens == capacity.blocks * 64 && capacity.pre_snapshot_fits == 1);
    int64_t each = pk_sequence_variable_bytes(kernel, 4096) + pk_sequence_admission_bytes(kernel);
    CHECK(pk_sequences_that_fit(kernel, capacity.bytes, 4096) == capacity.bytes / each);
    pk_capacity before = capacity;
    CHECK(pk_kv_capacity(kernel, fixed.total, 1, 0, &capacity, &error) == PK_NO_ROOM);
    CHECK(strcmp(error.field, "fixed_bytes") == 0);
    CHECK(pk_kv_capacity(kernel, fixed.total + 1, 0.5, 0, &capacity, &error) == PK_NO_ROOM);
    CHECK(strcmp(error.field, "utilization") == 0);
    CHECK(pk_kv_capacity(kernel, fixed.total + 1, 1, 0, &capacity, &error) == PK_NO_ROOM);
    CHECK(strcmp(error.field, "block") == 0);
    CHECK(pk_kv_capacity(kernel, -1, 0, 0, &capacity, &error) == PK_ARGUMENT);
    CHECK(pk_kv_capacity(kernel, 0, 1.01, 0, &capacity, &error) == PK_ARGUMENT);
    CHECK(pk_kv_capacity(kernel, 0, 0, -1, &capacity, &error) == PK_ARGUMENT);
    CHECK(memcmp(&before, &capacity, sizeof before) == 0);
    pk_kernel_free(kernel);
}

static void transfers_take_the_longer_of_floor_and_rate(void) {
    pk_kernel *kernel = check_example_kernel();
    CHECK(pk_find_tier(kernel, "nvme_gen4") == 1 && pk_find_tier(kernel, "nvme") == -1);
    CHECK(pk_find_tier(kernel, NULL) == -1);
    CHECK(pk_tier_time_ns(kernel, 1, PK_FROM_TIER, 67108864, 1) == 9586980);
    CHECK(pk_tier_time_ns(kernel, 1, PK_TO_TIER, 67108864, 8) == 107374182);
    CHECK(pk_tier_time_ns(kernel, 0, PK_FROM_TIER, -5, -5) == 1000);
    CHECK(pk_tier_time_ns(kernel, 2, PK_TO_TIER, 1, 1) == INT64_MAX);
    CHECK(pk_tier_time_ns(kernel, -1, PK_TO_TIER, 1, 1) == INT64_MAX);
    CHECK(pk_tier_time_ns(kernel, 1, PK_TO_TIER, INT64_MAX, INT64_MAX) == INT64_MAX);

    pk_placement here = {3, 1, 0, 0}, there = {4, 1, 1, 0};
    pk_transfer_demand demand = PK_TRANSFER_DEMAND_INIT;
    CHECK(pk_pd_transfer_demand(kernel, 2000, &here, &there, &demand, NULL) == PK_OK);
    int64_t ring = 17 * 2 * 64 * INT64_C(6565) / 10; /* the pages of a full window and one more */
    CHECK(demand.bytes == 2000 * 3 * 576 + 1000 * 17 * 2048 / 4 + ring);
    CHECK(demand.floor_ns == 6350 && demand.link_count == 2 && pk_transfer_demand_check(&demand, NULL) == PK_OK);
    CHECK(demand.links[0].kind == PK_LINK_NIC && demand.links[0].place == 3 && demand.links[1].place == 4);
    CHECK(pk_pd_transfer_time_ns(kernel, 2000, &here, &there) == pk_alone_time_ns(&demand));
    CHECK(pk_pd_transfer_time_ns(kernel, 0, &here, &there) == 0);
    CHECK(pk_pd_transfer_time_ns(kernel, INT64_MAX, &here, &there) == (int64_t)(0x1p63 / 50e9 * 1e9));
    CHECK(pk_pd_transfer_demand(kernel, 1, &here, &here, &demand, NULL) == PK_OK);
    CHECK(demand.link_count == 1 && demand.links[0].kind == PK_LINK_NODE);
    CHECK(pk_pd_transfer_demand(kernel, 1, NULL, &there, &demand, NULL) == PK_NULL_ARGUMENT);
    pk_kernel_free(kernel);
}

static void malformed_demands_are_named(void) {
    const pk_transfer_demand good = {sizeof good, 0, 5, 7, 1, 0, {{PK_LINK_NODE, 0, 3, 1e9}, {0, 0, 0, 0}}};
    pk_error error = PK_ERROR_INIT;
    pk_transfer_demand bad = good;
    CHECK(pk_transfer_demand_check(&good, &error) == PK_OK && pk_alone_time_ns(&good) == 7);
    bad.link_count = 0;
    CHECK(pk_transfer_demand_check(&bad, &error) == PK_ARGUMENT && strcmp(error.field, "links") == 0);
    CHECK(pk_alone_time_ns(&bad) == 7);
    bad = good, bad.links[0].bytes_per_second = 0;
    CHECK(pk_transfer_demand_check(&bad, &error) == PK_ARGUMENT && pk_alone_time_ns(&bad) == INT64_MAX);
    bad = good, bad.links[1] = good.links[0], bad.link_count = 2;
    CHECK(pk_transfer_demand_check(&bad, &error) == PK_ARGUMENT);
    bad = good, bad.bytes = -1;
    CHECK(pk_transfer_demand_check(&bad, &error) == PK_ARGUMENT && strcmp(error.field, "bytes") == 0);
    bad = good, bad.floor_ns = -1;
    CHECK(pk_transfer_demand_check(&bad, &error) == PK_ARGUMENT && strcmp(error.field, "floor_ns") == 0);
}

static void host_work_is_linear_in_the_prompt(void) {
    pk_kernel *kernel = check_example_kernel();
    CHECK(pk_admission_overhead_ns(kernel, 0) == 0 && pk_admission_overhead_ns(kernel, -1) == 0);
    CHECK(pk_admission_overhead_ns(kernel, 8000) == 42800000);
    CHECK(pk_admission_overhead_ns(kernel, INT64_MAX) == INT64_MAX);
    CHECK(pk_output_token_overhead_ns(kernel) == 45900 && pk_completion_overhead_ns(kernel) == 777300);
    pk_kernel_free(kernel);
}

static void results_are_untouched_on_error(void) {
    pk_kernel *kernel = check_example_kernel();
    pk_memory_breakdown fixed = PK_MEMORY_BREAKDOWN_INIT;
    fixed.struct_size = 8;
    CHECK(pk_fixed_bytes(kernel, &fixed, NULL) == PK_STRUCT_SIZE && fixed.total == 0);
    CHECK(pk_fixed_bytes(NULL, &fixed, NULL) == PK_NULL_ARGUMENT);
    CHECK(pk_fixed_bytes(kernel, NULL, NULL) == PK_NULL_ARGUMENT);
    CHECK(pk_kv_capacity(kernel, 0, 0, 0, NULL, NULL) == PK_NULL_ARGUMENT);
    CHECK(pk_transfer_demand_check(NULL, NULL) == PK_NULL_ARGUMENT);
    pk_kernel_free(kernel);
}

void test_memory(void) {
    fixed_bytes_are_the_sum_of_their_parts();
    sequences_are_paged_windowed_and_bounded();
    capacity_fills_what_the_fixed_bytes_leave();
    transfers_take_the_longer_of_floor_and_rate();
    malformed_demands_are_named();
    host_work_is_linear_in_the_prompt();
    results_are_untouched_on_error();
}
