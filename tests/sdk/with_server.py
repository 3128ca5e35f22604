"""Runs a command beside a fresh Tallygate: python with_server.py BINARY COMMAND...

The binary serves the shipped configuration and, added to it, what stands in `config` beside this
file, from a directory of its own and on free ports. Each policy in `config/policies` has KEYS
keys (one if it is not published), `tg-POLICY-0`, `tg-POLICY-1` and so on, so that a test can take
one that nobody has used.
The command finds the server through TALLYGATE_URL and TALLYGATE_ADMIN, and its ledger with
TALLYGATE_BIN and TALLYGATE_CONFIG. With TALLYGATE_JUDGES=0 the tables about tools are left out, for a binary that
does not judge calls.
"""

import hashlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
SHIPPED = HERE.parents[1] / "config"
ADDED = HERE / "config"
JUDGES = os.environ.get("TALLYGATE_JUDGES") != "0"

KEYS = 200
# What the providers of `extra.toml` name.
SECRETS = {"TALLYGATE_SDK_KEY": "tg-demo-key", "TALLYGATE_SDK_WRONG_KEY": "tg-wrong"}

START_TIMEOUT_S = 20
STOP_TIMEOUT_S = 30


def main() -> int:
    binary, *command = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        home = pathlib.Path(directory)
        listen, admin = free_port(), free_port()
        config = write_config(home / "config", listen, admin)
        log = home / "output.log"
        with log.open("wb") as output:
            server = subprocess.Popen(
                [binary, "serve", "--config", config], env=os.environ | SECRETS,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )
        code = 1
        try:
            wait_until_ready(server, f"http://127.0.0.1:{admin}/healthz")
            env = os.environ | {
                "TALLYGATE_URL": f"http://127.0.0.1:{listen}/v1",
                "TALLYGATE_ADMIN": f"http://127.0.0.1:{admin}",
                "TALLYGATE_BIN": str(pathlib.Path(binary).resolve()),
                "TALLYGATE_CONFIG": str(config),
            }
            code = subprocess.run(command, env=env, check=False).returncode
        finally:
            stopped = stop(server)
            if code or stopped:
                print(f"-- the server (exit code {stopped}) said:", file=sys.stderr)
                print(log.read_text(errors="replace")[-4000:], file=sys.stderr)
    return code or stopped


def write_config(directory: pathlib.Path, listen: int, admin: int) -> pathlib.Path:
    """The shipped files, changed in the ports alone, with ours added to them."""
    shutil.copytree(SHIPPED, directory)
    file = directory / "tallygate.toml"
    text = file.read_text()
    for member, port in (("listen", listen), ("admin_listen", admin)):
        text, found = re.subn(rf'(?m)^{member} = "[^"]*"', f'{member} = "127.0.0.1:{port}"', text)
        assert found == 1, f"{member} stands {found} times in the shipped configuration"
    extra = (ADDED / "extra.toml").read_text().replace("LISTEN", str(listen))
    text += "\n" + re.sub(r"DIGEST\(([^)]*)\)", lambda match: digest(match[1]), extra)
    for policy in sorted((ADDED / "policies").glob("*.toml")):
        rules = policy.read_text()
        (directory / "policies" / policy.name).write_text(rules if JUDGES else without_tools(rules))
        keys = KEYS if 'status = "published"' in rules else 1
        text += "".join(key_of(policy.stem, number) for number in range(keys))
    file.write_text(text)
    return file


def key_of(policy: str, number: int) -> str:
    name = f"{policy}-{number}"
    sha256 = digest(f"tg-{name}")
    return f'\n[[keys]]\nname = "{name}"\ntenant = "sdk"\nsha256 = "{sha256}"\npolicy = "{policy}"\n'


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def without_tools(rules: str) -> str:
    return re.sub(r"(?ms)^\[tools\]\n.*?(?=^\[|\Z)", "", rules)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_ready(server: subprocess.Popen, url: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    raise SystemExit(f"the server is not ready: {url}")


def stop(server: subprocess.Popen) -> int:
    """Asks it to drain. Its exit code, 0 when all is well."""
    server.terminate()
    try:
        return server.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
        return 1


if __name__ == "__main__":
    sys.exit(main())
