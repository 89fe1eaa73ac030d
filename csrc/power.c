/* Powers with any exponent, without libm: its pow may differ in the last bit from one platform to the next. Both halves
 * are a table and a short series in what it leaves over, so that one is a few dozen multiplications. */
#include "internal.h"

#include <string.h>

/* By the first six binary digits of a mantissa in [1, 2): the middle of their interval in 128ths, its inverse and its
 * binary logarithm. From HALVED on the mantissa is halved. The intervals beside 1 have 1 itself for their middle, where
 * a logarithm must be as exact as its argument is near 1. */
enum { HALVED = 27 };
typedef struct centre {
    double value, inverse, logarithm;
} centre;
#define CENTRE(n, log) {(n) / 128.0, 128.0 / (n), log}
static const centre centres[64] = {
    CENTRE(128, 0), CENTRE(131, 0x1.11cd1d5133413p-5), CENTRE(133, 0x1.c4dfab90aab5fp-5),
    CENTRE(135, 0x1.3aa2fdd27f1c3p-4), CENTRE(137, 0x1.918a16e46335bp-4), CENTRE(139, 0x1.e72ec117fa5b2p-4),
    CENTRE(141, 0x1.1dcd197552b7bp-3), CENTRE(143, 0x1.476a9f983f74dp-3), CENTRE(145, 0x1.70742d4ef027fp-3),
    CENTRE(147, 0x1.98edd077e70dfp-3), CENTRE(149, 0x1.c0db6cdd94deep-3), CENTRE(151, 0x1.e840be74e6a4dp-3),
    CENTRE(153, 0x1.0790adbb03009p-2), CENTRE(155, 0x1.1ac05b291f07p-2), CENTRE(157, 0x1.2db10fc4d9aafp-2),
    CENTRE(159, 0x1.406463b1b0449p-2), CENTRE(161, 0x1.52dbdfc4c96b3p-2), CENTRE(163, 0x1.6518fe4677ba7p-2),
    CENTRE(165, 0x1.771d2ba7efb3cp-2), CENTRE(167, 0x1.88e9c72e0b226p-2), CENTRE(169, 0x1.9a802391e232fp-2),
    CENTRE(171, 0x1.abe18797f1f49p-2), CENTRE(173, 0x1.bd0f2e9e79031p-2), CENTRE(175, 0x1.ce0a4923a587dp-2),
    CENTRE(177, 0x1.ded3fd442364cp-2), CENTRE(179, 0x1.ef6d67328e22p-2), CENTRE(181, 0x1.ffd799a83ff9bp-2),
    CENTRE(91.5, -0x1.efec61b011f85p-2), CENTRE(92.5, -0x1.dfdd89d586e2bp-2), CENTRE(93.5, -0x1.cffae611ad12bp-2),
    CENTRE(94.5, -0x1.c043859e2fdb3p-2), CENTRE(95.5, -0x1.b0b67f4f4681p-2), CENTRE(96.5, -0x1.a152f142981b4p-2),
    CENTRE(97.5, -0x1.921800924dd3bp-2), CENTRE(98.5, -0x1.8304d90c11fd3p-2), CENTRE(99.5, -0x1.7418acebbf18fp-2),
    CENTRE(100.5, -0x1.6552b49986277p-2), CENTRE(101.5, -0x1.56b22e6b578e5p-2), CENTRE(102.5, -0x1.48365e695d797p-2),
    CENTRE(103.5, -0x1.39de8e1559f6fp-2), CENTRE(104.5, -0x1.2baa0c34be1ecp-2), CENTRE(105.5, -0x1.1d982c9d52708p-2),
    CENTRE(106.5, -0x1.0fa848044b351p-2), CENTRE(107.5, -0x1.01d9bbcfa61d4p-2), CENTRE(108.5, -0x1.e857d3d361368p-3),
    CENTRE(109.5, -0x1.cd3c712d31109p-3), CENTRE(110.5, -0x1.b2602497d5346p-3), CENTRE(111.5, -0x1.97c1cb13c7ec1p-3),
    CENTRE(112.5, -0x1.7d60496cfbb4cp-3), CENTRE(113.5, -0x1.633a8bf437ce1p-3), CENTRE(114.5, -0x1.494f863b8df35p-3),
    CENTRE(115.5, -0x1.2f9e32d5bfdd1p-3), CENTRE(116.5, -0x1.162593186da7p-3), CENTRE(117.5, -0x1.f9c95dc1d1165p-4),
    CENTRE(118.5, -0x1.c7b528b70f1c5p-4), CENTRE(119.5, -0x1.960caf9abb7cap-4), CENTRE(120.5, -0x1.64ce26c067157p-4),
    CENTRE(121.5, -0x1.33f7cde14cf5ap-4), CENTRE(122.5, -0x1.0387efbca869ep-4), CENTRE(123.5, -0x1.a6f9c377dd31bp-5),
    CENTRE(124.5, -0x1.47aa07357704fp-5), CENTRE(125.5, -0x1.d23afc49139f9p-6), CENTRE(128, 0), CENTRE(128, 0)};
#undef CENTRE

/* 2^(i / 32) */
static const double roots[32] = {
    0x1p+0, 0x1.059b0d3158574p+0, 0x1.0b5586cf9890fp+0, 0x1.11301d0125b51p+0, 0x1.172b83c7d517bp+0,
    0x1.1d4873168b9aap+0, 0x1.2387a6e756238p+0, 0x1.29e9df51fdee1p+0, 0x1.306fe0a31b715p+0, 0x1.371a7373aa9cbp+0,
    0x1.3dea64c123422p+0, 0x1.44e086061892dp+0, 0x1.4bfdad5362a27p+0, 0x1.5342b569d4f82p+0, 0x1.5ab07dd485429p+0,
    0x1.6247eb03a5585p+0, 0x1.6a09e667f3bcdp+0, 0x1.71f75e8ec5f74p+0, 0x1.7a11473eb0187p+0, 0x1.82589994cce13p+0,
    0x1.8ace5422aa0dbp+0, 0x1.93737b0cdc5e5p+0, 0x1.9c49182a3f09p+0, 0x1.a5503b23e255dp+0, 0x1.ae89f995ad3adp+0,
    0x1.b7f76f2fb5e47p+0, 0x1.c199bdd85529cp+0, 0x1.cb720dcef9069p+0, 0x1.d5818dcfba487p+0, 0x1.dfc97337b9b5fp+0,
    0x1.ea4afa2a490dap+0, 0x1.f50765b6e454p+0};

/* ln(1 + z) / z for |z| <= 1/64: the series has lost every digit of a double after nine terms. */
static double log_series(double z) {
    double z2 = z * z, z4 = z2 * z2;
    double low = (1 - z * (1.0 / 2)) + z2 * (1.0 / 3 - z * (1.0 / 4));
    double high = (1.0 / 5 - z * (1.0 / 6)) + z2 * (1.0 / 7 - z * (1.0 / 8));
    return low + z4 * (high + z4 * (1.0 / 9));
}

/* e^x - 1 for |x| <= ln(2) / 64: six terms. */
static double exp_series(double x) {
    double x2 = x * x;
    double low = 1 + x * (1.0 / 2), middle = 1.0 / 6 + x * (1.0 / 24), high = 1.0 / 120 + x * (1.0 / 720);
    return x * (low + x2 * (middle + x2 * high));
}

/* log2 of a normal positive number. */
static double binary_logarithm(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t i = (uint32_t)(bits >> 46) & 63, halved = i >= HALVED;
    double whole = (double)((int64_t)(bits >> 52) - 1023 + halved), mantissa;
    bits = (bits & 0x000fffffffffffffu) | (uint64_t)(1023 - halved) << 52;
    memcpy(&mantissa, &bits, sizeof mantissa);
    /* The difference is exact. */
    double z = (mantissa - centres[i].value) * centres[i].inverse;
    return whole + (centres[i].logarithm + z * log_series(z) * 0x1.71547652b82fep0);
}

static double two_to(int64_t exponent) {
    double value;
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

double pk_power(double base, double exponent) {
    if (!(base > 0)) return 0;
    if (base < 0x1p-1022) base = 0x1p-1022;
    if (base > 0x1p1023) base = 0x1p1023;
    double binary = exponent * binary_logarithm(base);
    if (binary >= 1023) return 0x1p1023;
    if (binary <= -1022) return 0;
    /* Adding and taking away 1.5 * 2^52 rounds to a whole number. */
    double nearest = (binary * 32 + 0x1.8p52) - 0x1.8p52;
    int64_t parts = (int64_t)nearest;
    double root = roots[parts & 31];
    double rest = (binary - nearest / 32) * 0x1.62e42fefa39efp-1;
    return (root + root * exp_series(rest)) * two_to(parts >> 5);
}
