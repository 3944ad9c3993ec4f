"""Builds the wheel: pure Python packages `dyncomp`, `dyncomp.codegen`, and the native runtime `dyncomp._frame`.

The runtime reads tensor metadata directly, so it is built against one torch and refuses to load beside another.
`DYNCOMP_WITHOUT_TORCH=1` builds only the torch-free half (frame hook, caches, guards on Python objects).
"""

import importlib.util
import os
import pathlib
import re
import sys
from concurrent.futures import ThreadPoolExecutor

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).parent.resolve()
WITHOUT_TORCH = os.environ.get("DYNCOMP_WITHOUT_TORCH") == "1"

NO_TORCH = """
dyncomp's native runtime is built against the torch it will run beside, and no torch was found for {python}.
  1. Install torch first (2.11 or newer):   python -m pip install torch
  2. Build without an isolated environment: python -m pip install --no-build-isolation .
To build only the torch-free parts (frame hook and bytecode tools), set DYNCOMP_WITHOUT_TORCH=1.
"""


def torch_install():
    """(directory of the torch package, its version), found without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        sys.exit(NO_TORCH.format(python=sys.executable))
    where = pathlib.Path(spec.submodule_search_locations[0])
    version = re.search(r"__version__ = '([^']+)'", (where / "version.py").read_text())
    if version is None:
        sys.exit(f"cannot read the version of torch from {where / 'version.py'}")
    numbers = tuple(int(x) for x in re.findall(r"\d+", version.group(1))[:2])
    if numbers < (2, 11):
        sys.exit(f"dyncomp needs torch 2.11 or newer, found {version.group(1)}: python -m pip install -U torch")
    return where, version.group(1)


def is_stale(obj, read_list, src):
    """Whether `obj` is older than this file, than its source, or than a file that the compiler read for it."""
    if not (os.path.exists(obj) and os.path.exists(read_list)):
        return True
    built = os.path.getmtime(obj)
    read = pathlib.Path(read_list).read_text().replace("\\\n", " ").partition(": ")[2].split()
    return any(not os.path.exists(p) or os.path.getmtime(p) >= built for p in [__file__, src, *read])


class IncrementalBuild(build_ext):
    """Compiles an extension's sources side by side, and only those that changed, or that read a header that changed.

    The compiler writes beside each object which files it read (`-MMD`); an object without that list is compiled anew.
    Objects for one torch are kept apart from those for another.
    """

    def finalize_options(self):
        super().finalize_options()
        self.build_temp = os.path.join(self.build_temp, "plain" if WITHOUT_TORCH else torch_install()[1])

    def build_extensions(self):
        compile_one = self.compiler._compile

        def compile_if_stale(obj, src, ext, cc_args, extra, pp_opts):
            read_list = obj + ".d"
            if not self.force and not is_stale(obj, read_list, src):
                return
            compile_one(obj, src, ext, cc_args, [*extra, "-MMD", "-MF", read_list], pp_opts)

        def compile_all(
            sources,
            output_dir=None,
            macros=None,
            include_dirs=None,
            debug=0,
            extra_preargs=None,
            extra_postargs=None,
            depends=None,
        ):
            _, objects, extra, pp_opts, build = self.compiler._setup_compile(
                output_dir, macros, include_dirs, sources, depends, extra_postargs
            )
            cc_args = self.compiler._get_cc_args(pp_opts, debug, extra_preargs)
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                jobs = [
                    pool.submit(compile_if_stale, o, *build[o], cc_args, extra, pp_opts) for o in objects if o in build
                ]
                for job in jobs:
                    job.result()
            return objects

        self.compiler.compile = compile_all
        self.force_link = True
        super().build_extensions()

    def build_extension(self, ext):
        force, self.force = self.force, False
        # setuptools would skip the whole extension by time stamps of sources alone; headers count too.
        ext.depends = [str(p.relative_to(ROOT)) for p in (ROOT / "_frame").rglob("*.h")] + ["setup.py"]
        super().build_extension(ext)
        self.force = force


def cpp(folder):
    return sorted(str(p.relative_to(ROOT)) for p in (ROOT / "_frame" / folder).glob("*.cpp"))


def extensions():
    from Cython.Build import cythonize

    flags = ["-O2", "-std=c++20", "-fvisibility=hidden", "-Wall", "-Wno-unused-function", "-g1"]
    common = dict(language="c++", extra_compile_args=flags, include_dirs=["_frame"])
    core_sources = [s for folder in ("hook", "cache", "guards", "dispatch") for s in cpp(folder)]
    if WITHOUT_TORCH:
        core = Extension(
            "dyncomp._frame._core", ["_frame/core.pyx", *core_sources], define_macros=[("DYNCOMP_TORCH", "0")], **common
        )
        exts = [core]
    else:
        where, version = torch_install()
        cxx = dict(common)
        cxx["include_dirs"] = ["_frame", str(where / "include"), str(where / "include/torch/csrc/api/include")]
        macros = [("DYNCOMP_TORCH", "1"), ("DYNCOMP_TORCH_VERSION", f'"{version}"')]
        link = dict(library_dirs=[str(where / "lib")], define_macros=macros)
        exts = [
            Extension(
                "dyncomp._frame._core",
                ["_frame/core.pyx", *core_sources],
                libraries=["c10", "torch_cpu"],
                **link,
                **cxx,
            )
        ]
        exec_sources = [s for folder in ("executor", "device", "blockvm") for s in cpp(folder)]
        exts.append(
            Extension(
                "dyncomp._frame._exec",
                ["_frame/exec.pyx", *exec_sources],
                libraries=["c10", "torch_cpu", "torch", "torch_python", "dl"],
                **link,
                **cxx,
            )
        )
    only = os.environ.get("DYNCOMP_BUILD_ONLY")  # "core" or "exec": while working on one of them
    exts = [e for e in exts if only is None or e.name.endswith(only)]
    return cythonize(exts, language_level=3, compiler_directives={"binding": False}, build_dir=None)


PACKAGE_DIR = {"dyncomp": "dyncomp", "dyncomp.codegen": "codegen", "dyncomp._frame": "_frame"}
PACKAGES = (
    ["dyncomp", "dyncomp.codegen", "dyncomp._frame"]
    + [f"dyncomp.{p}" for p in find_packages("dyncomp")]
    + [f"dyncomp.codegen.{p}" for p in find_packages("codegen")]
)

setup(
    packages=PACKAGES,
    package_dir=PACKAGE_DIR,
    package_data={"dyncomp": ["py.typed"], "dyncomp.codegen": ["emit/cpp/*.h"]},
    ext_modules=extensions()
    if {"build_ext", "bdist_wheel", "build", "install", "develop", "editable_wheel"} & set(sys.argv)
    else [],
    cmdclass={"build_ext": IncrementalBuild},
    zip_safe=False,
)
