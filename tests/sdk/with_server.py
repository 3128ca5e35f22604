"""Runs a command beside a fresh Tallygate: python with_server.py BINARY COMMAND...

The binary serves the shipped configuration from a directory of its own, on free ports, with a
few more keys for the refusals. The command finds it through TALLYGATE_URL.
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

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Each becomes a policy and a key, `tg-sdk-NAME`. The demo key has the shipped policy.
POLICIES = {
    "one-request": "[budget]\ndaily_requests = 1\n",
    "no-money": '[budget]\ndaily_cost_usd = "0.000001"\n',
    "one-a-minute": "[limits]\nrequests_per_minute = 1\n",
}

START_TIMEOUT_S = 20
STOP_TIMEOUT_S = 30


def main() -> int:
    binary, *command = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        home = pathlib.Path(directory)
        listen, admin = free_port(), free_port()
        config = write_config(home, listen, admin)
        log = home / "output.log"
        with log.open("wb") as output:
            server = subprocess.Popen(
                [binary, "serve", "--config", config],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )
        code = 1
        try:
            wait_until_ready(server, f"http://127.0.0.1:{admin}/healthz")
            env = os.environ | {"TALLYGATE_URL": f"http://127.0.0.1:{listen}/v1"}
            code = subprocess.run(command, env=env, check=False).returncode
        finally:
            stopped = stop(server)
            if code or stopped:
                print(f"-- the server (exit code {stopped}) said:", file=sys.stderr)
                print(log.read_text(errors="replace")[-4000:], file=sys.stderr)
    return code or stopped


def write_config(home: pathlib.Path, listen: int, admin: int) -> pathlib.Path:
    """The shipped files, changed in the ports alone; the store's path is relative to them."""
    shutil.copytree(ROOT / "config", home / "config")
    file = home / "config" / "tallygate.toml"
    text = file.read_text()
    for member, port in (("listen", listen), ("admin_listen", admin)):
        text, found = re.subn(rf'(?m)^{member} = "[^"]*"', f'{member} = "127.0.0.1:{port}"', text)
        assert found == 1, f"{member} stands {found} times in the shipped configuration"
    for name, rules in POLICIES.items():
        digest = hashlib.sha256(f"tg-sdk-{name}".encode()).hexdigest()
        text += f'\n[[keys]]\nname = "{name}"\ntenant = "sdk"\nsha256 = "{digest}"\npolicy = "sdk-{name}"\n'
        head = f'id = "sdk-{name}"\nversion = 1\nstatus = "published"\n\n[models]\nallow = ["sandbox-*"]\n\n'
        (home / "config" / "policies" / f"sdk-{name}.toml").write_text(head + rules)
    file.write_text(text)
    return file


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
