"""Builds the package: a wheel is a zip archive with two text files beside the modules.

A backend of its own, so that `pip install` works where no package index can be reached.
"""

import base64
import hashlib
import pathlib
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
NAME, VERSION = "tenure_client", "0.1.0"
INFO = f"{NAME}-{VERSION}.dist-info"
METADATA = f"""\
Metadata-Version: 2.1
Name: tenure-client
Version: {VERSION}
Summary: Elections, locks and jobs over the HTTP of a Tenure sidecar. No dependencies.
License: MIT OR Apache-2.0
Requires-Python: >=3.9
Description-Content-Type: text/markdown

"""
WHEEL = "Wheel-Version: 1.0\nGenerator: build_backend\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _files(editable):
    if editable:
        yield f"{NAME}.pth", str(HERE / "src").encode() + b"\n"
    else:
        for path in sorted((HERE / "src").rglob("*")):
            if path.suffix in (".py", ".typed"):
                yield path.relative_to(HERE / "src").as_posix(), path.read_bytes()
    readme = (HERE / "README.md").read_bytes()
    yield f"{INFO}/METADATA", METADATA.encode() + readme
    yield f"{INFO}/WHEEL", WHEEL.encode()


def _build(folder, editable):
    name = f"{NAME}-{VERSION}-py3-none-any.whl"
    record = []
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in _files(editable):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(data)}\n")
            wheel.writestr(path, data)
        record.append(f"{INFO}/RECORD,,\n")
        wheel.writestr(f"{INFO}/RECORD", "".join(record))
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _build(wheel_directory, editable=False)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _build(wheel_directory, editable=True)


def build_sdist(sdist_directory, config_settings=None):
    folder = f"{NAME}-{VERSION}"
    name = f"{folder}.tar.gz"
    with tarfile.open(pathlib.Path(sdist_directory) / name, "w:gz") as archive:
        for part in ("pyproject.toml", "build_backend.py", "README.md", "src"):
            archive.add(HERE / part, f"{folder}/{part}")
    return name
