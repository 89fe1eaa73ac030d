#include <pykernel.hpp>

int main() {
    try {
        pykernel::Kernel::load("no image", 8);
    } catch (const pykernel::Error &error) {
        return error.status() == PK_IMAGE_FOREIGN && error.field() == "image.magic" ? 0 : 1;
    }
    return 1;
}
