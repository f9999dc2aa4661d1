"""What the C++ kernels share: the library, how it is called, and the headers that they include."""
