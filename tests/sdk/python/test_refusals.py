"""Every refusal that `refusals.json` can provoke, as the official SDK shows it: its status, its
code and our words, after one request. Each row is asked for streamed and not."""

import contextlib
import json
import pathlib
import unittest

import openai

from support import JUDGES, NO_JUDGE, URL, Wire, fresh_key

ROWS = json.loads((pathlib.Path(__file__).parents[1] / "refusals.json").read_text())

KINDS = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    409: openai.ConflictError,
    422: openai.UnprocessableEntityError,
    429: openai.RateLimitError,
}


class Refusals(unittest.TestCase):
    def test_each_refusal_is_shown_with_its_reason(self):
        for row in ROWS:
            for stream in (False,) if row.get("whole") or row.get("get") else (False, True):
                with self.subTest(row["name"], stream=stream):
                    if row.get("judges") and not JUDGES:
                        self.skipTest(NO_JUDGE)
                    self.check(row, stream)

    def check(self, row, stream):
        key, wire = row.get("key") or fresh_key(row.get("policy", "anything")), Wire()
        retries = 0 if row.get("retried") else openai.DEFAULT_MAX_RETRIES
        client = openai.OpenAI(
            base_url=URL, api_key=key, http_client=wire.sync, max_retries=retries
        )
        with client, contextlib.ExitStack() as stack:
            prepare(client, row, stack)
            for _ in range(row.get("times", 1)):
                before = wire.requests
                with self.assertRaises(openai.APIStatusError) as caught:
                    ask(client, row, stream)
                self.assertEqual(wire.requests - before, 1, "requests sent")
                if caught.exception.status_code == row["status"]:
                    break
        self.assert_told(row, caught.exception)

    def assert_told(self, row, error):
        server = openai.InternalServerError if row["status"] >= 500 else openai.APIStatusError
        self.assertIs(type(error), KINDS.get(row["status"], server))
        self.assertEqual(error.status_code, row["status"])
        self.assertIn(row["says"], str(error))
        self.assertIn(row["says"], error.body["message"])
        self.assertTrue(error.request_id, "an x-request-id")
        for member in {"code", "type", "param"} & row.keys():
            self.assertEqual(getattr(error, member), row[member], member)


def prepare(client, row, stack):
    """Uses up what the row needs used up."""
    if "first" in row:
        ask(client, {"text": row["first"]}, stream=False)
    if "open" in row:
        opened = ask(client, {"text": row["open"], "model": "sandbox-agent"}, stream=True)
        next(stack.enter_context(opened))


def ask(client, row, stream):
    headers = {
        name: openai.Omit() if value is None else value
        for name, value in row.get("headers", {}).items()
    }
    if "get" in row:
        return client.get(row["get"], cast_to=object, options={"headers": headers})
    text = "a" * row["chars"] if "chars" in row else row.get("text", "hi")
    offered = {"tools": [tool(name) for name in row["tools"]]} if "tools" in row else {}
    return client.chat.completions.create(
        model=row.get("model", "sandbox-echo"),
        messages=[{"role": "user", "content": text}],
        stream=stream,
        extra_headers=headers,
        extra_body=row.get("members"),
        **offered,
    )


def tool(name):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


if __name__ == "__main__":
    unittest.main(verbosity=2)
