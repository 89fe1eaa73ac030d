/* Powers with any exponent, without libm: its pow may differ in the last bit from one platform to the next. */
#include "internal.h"

#include <string.h>

/* The mantissa of a normal positive number in [sqrt(1/2), sqrt(2)), and its binary exponent. */
static double split(double value, int64_t *exponent) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    *exponent = (int64_t)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&value, &bits, sizeof bits);
    if (value < 0x1.6a09e667f3bcdp0) return value;
    *exponent += 1;
    return value / 2;
}

static double two_to(int64_t exponent) {
    double value;
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* ln(m) for m in [sqrt(1/2), sqrt(2)): twice the inverse hyperbolic tangent of (m - 1) / (m + 1), at most 0.172, whose
 * series has lost every digit of a double after eleven terms. */
static double logarithm(double m) {
    static const double inverse[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                                     1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
    double s = (m - 1) / (m + 1), z = s * s, sum = 0;
    for (int i = 0; i < 10; i++) sum = (sum + inverse[i]) * z;
    return 2 * s * (1 + sum);
}

/* e^x for |x| <= ln(2) / 2: the series to x^14, by the inverse factorials. */
static double exponential(double x) {
    static const double inverse[] = {0x1.93974a8c07c9dp-37, 0x1.6124613a86d09p-33, 0x1.1eed8eff8d898p-29,
                                     0x1.ae64567f544e4p-26, 0x1.27e4fb7789f5cp-22, 0x1.71de3a556c734p-19,
                                     0x1.a01a01a01a01ap-16, 0x1.a01a01a01a01ap-13, 0x1.6c16c16c16c17p-10,
                                     0x1.1111111111111p-7,  0x1.5555555555555p-5,  0x1.5555555555555p-3,
                                     0.5,                   1};
    double sum = 0;
    for (int i = 0; i < 14; i++) sum = (sum + inverse[i]) * x;
    return 1 + sum;
}

double pk_power(double base, double exponent) {
    if (!(base > 0)) return 0;
    if (base < 0x1p-1022) base = 0x1p-1022;
    if (base > 0x1p1023) base = 0x1p1023;
    int64_t whole;
    double m = split(base, &whole);
    /* The exponent's product with the whole binary digits is exact enough apart from that with the rest, since laws
     * keep |exponent * log2(base)| below a few thousand. */
    double binary = exponent * ((double)whole + logarithm(m) * 0x1.71547652b82fep0);
    if (binary > 1023) return 0x1p1023;
    if (binary < -1022) return 0;
    double nearest = (double)(int64_t)(binary + (binary < 0 ? -0.5 : 0.5));
    return exponential((binary - nearest) * 0x1.62e42fefa39efp-1) * two_to((int64_t)nearest);
}
