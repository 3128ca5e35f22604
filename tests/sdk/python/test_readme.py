"""The examples of the README run as they stand, but for the address."""

import hashlib
import hmac
import json
import pathlib
import re
import subprocess
import sys
import time
import unittest

from support import URL

ROOT = pathlib.Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()


def here(text):
    """The example, for this server."""
    changed = text.replace("http://127.0.0.1:8080/v1", URL)
    assert changed != text, "the example does not name the address of the server"
    return changed


def block(language, holding):
    """The one block in this language that holds this text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    (code,) = [code for code in blocks if holding in code]
    return code


def curl(path):
    """The one curl line that asks for this path."""
    (line,) = re.findall(rf"(?m)^    (curl http://127\S*{path} .*)$", README)
    return here(line)


def output(*command, **options):
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, **options)
    return done.stdout


class Examples(unittest.TestCase):
    def test_the_curl_line(self):
        self.assertIn('"content":"Hello, Tallygate"', output("sh", "-c", curl("/chat/completions")))

    def test_the_outcome_of_a_run(self):
        output("sh", "-c", curl("/chat/completions") + " -H 'X-Run-Id: r1'")
        told = json.loads(output("sh", "-c", curl("/outcome")))
        self.assertEqual(told.get("outcome"), "success", told)

    def test_python(self):
        code = here(block("python", "OpenAI"))
        self.assertEqual(output(sys.executable, "-c", code), "hi\n")

    def test_checking_a_webhook(self):
        names = {}
        exec(block("python", "is_ours"), names)
        stamp, body = str(int(time.time())), b"{}"
        made = hmac.new(b"secret", b"v1:" + stamp.encode() + b":" + body, hashlib.sha256)
        headers = {"X-Tallygate-Timestamp": stamp, "X-Tallygate-Signature": f"v1={made.hexdigest()}"}
        self.assertTrue(names["is_ours"]("secret", headers, body))
        self.assertFalse(names["is_ours"]("secret", headers, b"{ }"))
        self.assertFalse(names["is_ours"]("other", headers, body))

    def test_node(self):
        code = ["--input-type=module", "--eval", here(block("js", "OpenAI"))]
        packages = ROOT / "tests" / "sdk" / "node"
        self.assertEqual(output("node", *code, cwd=packages), "hi\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
