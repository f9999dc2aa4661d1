"""``python -m turbo_physai`` is ``turbo-physai``."""

from turbo_physai.cli import main

if __name__ == "__main__":
    main()
