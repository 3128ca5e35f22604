"""The control plane against its own description: schemathesis makes requests of all kinds, right
and wrong ones, and compares what comes back with what is promised."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOKEN = "tgo-sdk-operator"
# Ends by itself well before.
TIMEOUT_S = 300
CHECKS = [
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_headers_conformance", "response_schema_conformance", "negative_data_rejection",
    "positive_data_acceptance", "missing_required_header", "unsupported_method",
    "allow_header_conformance",
]  # Wrong tokens are for the integration tests: so many of them are answered 429.


class AdminApi(unittest.TestCase):
    def test_it_does_what_its_description_says(self):
        description = f"{os.environ['TALLYGATE_ADMIN']}/admin/v1/openapi.json"
        tool = pathlib.Path(sys.executable).with_name("schemathesis")
        done = subprocess.run(
            [
                tool, "run", description, "--header", f"Authorization: Bearer {TOKEN}",
                # Events have no end: each request for them would wait for its timeout.
                "--exclude-path", "/admin/v1/events",
                "--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing",
                "--max-examples", "25", "--seed", "4", "--no-shrink", "--max-time", "45",
                "--request-timeout", "10", "--suppress-health-check", "all", "--warnings", "off",
            ],
            cwd=self.enterContext(tempfile.TemporaryDirectory()), capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout[-12000:] + done.stderr[-2000:])
        self.assertIn("No issues found", done.stdout)


if __name__ == "__main__":
    unittest.main()
