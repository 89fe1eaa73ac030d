#include <pykernel.h>

int main(void) { return pk_version() == PK_VERSION && pk_arithmetic_is_exact() ? 0 : 1; }
