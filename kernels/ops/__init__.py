"""One operator a module; beside it one module per backend, each with `forward` and `backward`."""
