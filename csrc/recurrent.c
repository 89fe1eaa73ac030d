/* Recurrent mixers: a floor, and a rate in tokens. */
#include "internal.h"

double pk__recurrent_seconds(const pk_recurrent_law *law, double tokens) {
    if (law->law == PK_RECURRENT_NONE) return 0;
    return pk__seconds(law->floor_ns) + tokens / law->tokens_per_second;
}
