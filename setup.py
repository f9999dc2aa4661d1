"""Builds the CPU kernels; everything else about the package stands in pyproject.toml.

They are one plain shared library with a C interface, tied to no version of Python or torch, and
optional: without a compiler the installation goes on, and `backends()` of the kernels says so.
"""

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

LIBRARY = "turbo_physai.kernels.libturbo_physai_cpu"


class BuildPlainLibrary(build_ext):
    def get_ext_filename(self, fullname):
        """Without the tag of the Python that builds it."""
        return fullname.replace(".", "/") + ".so"

    def get_export_symbols(self, ext):
        """None: the library is no Python module."""
        return []


class WheelForEveryPython(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(
    ext_modules=[
        Extension(
            LIBRARY,
            sources=["kernels/ops/_cpu.cpp", "kernels/ops/ms_deform_attn.cpp"],
            depends=[
                "kernels/ops/_cpu.h",
                "kernels/ops/_foreach_target.h",
                "kernels/ops/_simd.h",
            ],
            language="c++",
            extra_compile_args=[
                "-std=c++17",
                "-O3",
                "-g0",
                "-fvisibility=hidden",
                "-fno-math-errno",
                "-fno-trapping-math",
                "-ffp-contract=fast",
                "-Wno-psabi",
            ],
            extra_link_args=["-pthread"],
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildPlainLibrary, "bdist_wheel": WheelForEveryPython},
)
