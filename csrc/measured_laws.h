/* The arithmetic of the measured laws: norms of two terms, and a matrix with its law worked in. */
#ifndef PK_MEASURED_LAWS_H
#define PK_MEASURED_LAWS_H

#include "laws.h"

#include <math.h>

/* (a^p + b^p)^(1/p), from the larger term, so that nothing overflows and equal terms cost no accuracy. */
PK__INLINE double pk__norm_of(double p, double inverse, double a, double b) {
    double large = a > b ? a : b, small = a > b ? b : a;
    if (!(small > 0) || !(large > 0)) return large;
    if (p == 1) return large + small;
    double share = pk_power(small / large, p);
    /* Below half a unit in the last place the smaller term is not there. */
    return share < 0x1p-53 ? large : large * pk_power(1 + share, inverse);
}

PK__INLINE double pk__norm(uint32_t exponent, double a, double b) {
    double p = (double)exponent / 16;
    return pk__norm_of(p, 1 / p, a, b);
}

PK__INLINE double pk__larger(double a, double b) { return a > b ? a : b; }
PK__INLINE double pk__smaller(double a, double b) { return a < b ? a : b; }

/* All of a matrix's law that does not depend on its rows. */
PK__INLINE pk__matrix pk__prepared(const pk_matrix_law *law, double bytes_per_second, double sms, double n, double k,
                                   double weight_bytes) {
    double p = (double)law->exponent / 16;
    return (pk__matrix){
        /* sqrt is exact in IEEE 754, unlike the rest of libm. */
        .start = law->floor + law->depth * sqrt(k),
        .per_row = law->per_row + 2 * (law->input_passes * k + law->output_passes * n) / bytes_per_second,
        .arithmetic_per_row = 2 * n * k / (law->peak_flops * law->compute) * (1 + law->k_half / k),
        .wave_rows = law->wave * sms * 16384 / n,
        .weights = weight_bytes * n * k / (bytes_per_second * law->memory),
        .exponent = p,
        .inverse_exponent = 1 / p,
        .flops_per_row = 2 * n * k,
        .peak_flops = law->peak_flops,
        .bytes = weight_bytes * n * k,
    };
}

PK__INLINE double pk__matrix_seconds(const pk__matrix *matrix, double m) {
    double arithmetic = matrix->arithmetic_per_row * (m + matrix->wave_rows);
    return matrix->start + matrix->per_row * m +
           pk__norm_of(matrix->exponent, matrix->inverse_exponent, arithmetic, matrix->weights);
}

#endif
