"""The package as it is installed: what travels in it, and what its import takes."""

import pathlib
import re
import subprocess
import sys

import headrace

PACKAGE = pathlib.Path(headrace.__file__).parent
# Of a base system, as in cmake/BundleLibraries.cmake.
BASE = re.compile(r"(ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libgcc_s|libstdc\+\+)[-.]|linux-vdso")


def test_its_libraries_are_those_beside_the_module():
    module = next(PACKAGE.glob("_engine*.so"))
    listed = subprocess.run(["ldd", str(module)], capture_output=True, check=True, text=True).stdout
    paths = dict(re.findall(r"(\S+) => (\S+)", listed))
    beside = {name for name, path in paths.items() if pathlib.Path(path).parent.resolve() == (PACKAGE / "lib").resolve()}
    assert beside == {path.name for path in (PACKAGE / "lib").iterdir()} and "libfmt.so.9" in beside
    assert all(BASE.match(name) for name in paths.keys() - beside)


def test_the_import_takes_no_numpy():
    script = "import headrace, sys; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout == "False\n"
