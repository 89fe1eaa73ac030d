/* Runs a fuzz target on files, where there is no fuzzer: replay FILE... */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        if (file == NULL) {
            perror(argv[i]);
            return 1;
        }
        enum { MOST = 1 << 20 };
        uint8_t *read = malloc(MOST);
        size_t size = fread(read, 1, MOST, file);
        (void)fclose(file);
        uint8_t *data = malloc(size > 0 ? size : 1); /* of exactly this size, for the sanitizers */
        for (size_t j = 0; j < size; j++) data[j] = read[j];
        free(read);
        (void)LLVMFuzzerTestOneInput(data, size);
        free(data);
    }
    printf("%d replayed\n", argc - 1);
    return 0;
}
