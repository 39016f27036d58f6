"""Requests that schemathesis makes up from /openapi.json, and its checks of the answers."""

import os
import subprocess
import sys
from pathlib import Path

URL = os.environ["TENURE_SIDECAR"].rstrip("/")
TOKEN = os.environ["TENURE_SIDECAR_TOKEN"]
HERE = Path(__file__).resolve().parent

command = [
    Path(sys.executable).with_name("schemathesis"),
    "--config-file",
    HERE / "schemathesis.toml",
    "run",
    f"{URL}/openapi.json",
    "--header",
    f"Authorization: Bearer {TOKEN}",
    # A stream that never ends: a test of ours reads it.
    "--exclude-path",
    "/events",
    *sys.argv[1:],
]
environment = {**os.environ, "SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(HERE)}
sys.exit(subprocess.run(command, env=environment).returncode)
