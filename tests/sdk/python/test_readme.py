"""The examples of the README run as they stand, but for the address."""

import pathlib
import re
import subprocess
import sys
import unittest

from support import URL

ROOT = pathlib.Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()


def here(text):
    """The example, for this server."""
    changed = text.replace("http://127.0.0.1:8080/v1", URL)
    assert changed != text, "the example does not name the address of the server"
    return changed


def block(language):
    (code,) = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return here(code)


def output(*command, **options):
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, **options)
    return done.stdout


class Examples(unittest.TestCase):
    def test_the_curl_line(self):
        (line,) = re.findall(r"(?m)^    (curl http://127.*)$", README)
        self.assertIn('"content":"Hello, Tallygate"', output("sh", "-c", here(line)))

    def test_python(self):
        self.assertEqual(output(sys.executable, "-c", block("python")), "hi\n")

    def test_node(self):
        code = ["--input-type=module", "--eval", block("js")]
        packages = ROOT / "tests" / "sdk" / "node"
        self.assertEqual(output("node", *code, cwd=packages), "hi\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
