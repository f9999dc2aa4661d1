"""Builds the CPU kernels, and puts the start-up file where Python looks for it; everything else
about the package stands in pyproject.toml.

The kernels are one plain shared library with a C interface, tied to no version of Python or torch,
and optional: without a compiler the installation goes on, and `backends()` of the kernels says so.
"""

import runpy
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

LIBRARY = "turbo_physai.kernels.libturbo_physai_cpu"
SOURCES = runpy.run_path("kernels/common/cpu/sources.py")["digest"](Path("kernels"))


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


class BuildWithStartup(build_py):
    """Python reads start-up files from the root of site-packages only, where no package lies."""

    def run(self):
        super().run()
        for source, target in self._startup_files().items():
            self.copy_file(source, target, preserve_mode=False)

    def get_outputs(self, include_bytecode=True):
        return [*super().get_outputs(include_bytecode), *self._startup_files().values()]

    def _startup_files(self):
        root = self.build_lib
        if self.editable_mode:  # what is built is not installed, but this folder is
            root = self.get_finalized_command("install").install_lib
        files = sorted(Path("startup").glob("turbo_physai_startup.*"))
        return {str(file): str(Path(root, file.name)) for file in files}


setup(
    ext_modules=[
        Extension(
            LIBRARY,
            sources=sorted(map(str, Path("kernels").rglob("*.cpp"))),
            depends=sorted(map(str, Path("kernels").rglob("*.h"))),
            include_dirs=["kernels"],
            define_macros=[("TURBO_PHYSAI_SOURCES", SOURCES)],
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
    cmdclass={
        "bdist_wheel": WheelForEveryPython,
        "build_ext": BuildPlainLibrary,
        "build_py": BuildWithStartup,
    },
)
