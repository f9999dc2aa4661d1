"""One operator a folder: its definition and inputs in `__init__`, a backend a module (`_cpu`,
`_triton`, `_torch`), the same in float64 for tests in `reference`, its benchmark in `bench`."""
