"""What the tests share: fresh keys, counted requests, the tools, the ledger."""

import asyncio
import itertools
import json
import os
import subprocess
import time

import openai

URL = os.environ["TALLYGATE_URL"]
JUDGES = os.environ.get("TALLYGATE_JUDGES") != "0"
NO_JUDGE = "this binary does not judge calls (TALLYGATE_JUDGES=0)"

LEDGER_TIMEOUT_S = 10
ENDINGS = {"request_settled", "request_refused"}

_numbers = {}


def fresh_key(policy):
    """A key of this policy that no test has used: limits and records are its own."""
    number = next(_numbers.setdefault(policy, itertools.count(1)))
    return f"tg-{policy}-{number}"


class Wire:
    """HTTP clients that count what they really send, retries included."""

    def __init__(self):
        self.requests = 0
        self.sync = openai.DefaultHttpxClient(event_hooks={"request": [self._count]}, timeout=20)
        self.aio = openai.DefaultAsyncHttpxClient(
            event_hooks={"request": [self._count_async]}, timeout=20
        )

    def _count(self, _request):
        self.requests += 1

    async def _count_async(self, _request):
        self.requests += 1


class Tools:
    """The tools of an agent, and what was really run."""

    def __init__(self):
        self.ran = []

    def functions(self):
        return [self.get_weather, self.delete_files]

    def get_weather(self, city: str) -> str:
        """The weather in a city."""
        self.ran.append(("get_weather", city))
        return f"4 degrees in {city}"

    def delete_files(self, path: str) -> str:
        """Deletes what is at a path."""
        self.ran.append(("delete_files", path))
        return "deleted"


def records(key, requests):
    """What the ledger holds of a key, once so many requests of it have ended."""
    name = key.removeprefix("tg-")
    command = [os.environ["TALLYGATE_BIN"], "ledger", "tail", "--json", "--lines", "1000"]
    deadline = time.monotonic() + LEDGER_TIMEOUT_S
    while True:
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = [record for record in map(json.loads, lines.splitlines()) if record.get("key") == name]
        ended = [record for record in found if record["kind"] in ENDINGS]
        if len(ended) >= requests:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not {requests} requests of {name} have ended: {found}")
        time.sleep(0.02)


def sent_upstream(key, requests):
    """How many of the requests of this key went to a provider."""
    found = records(key, requests)
    return sum(record["kind"] == "request_started" and "resumes" not in record for record in found)


class Approver:
    """A person at a terminal."""

    def __init__(self, key):
        self.name = key.removeprefix("tg-")

    async def waits(self):
        """The id of the one call of this key that waits."""
        deadline = time.monotonic() + LEDGER_TIMEOUT_S
        while time.monotonic() < deadline:
            waiting = json.loads(await self._run("list", "--json"))
            for approval in waiting:
                if approval["key"] == self.name:
                    return approval["id"]
            await asyncio.sleep(0.05)
        raise AssertionError(f"no call of {self.name} waits")

    async def decides(self, decision):
        await self._run(decision, await self.waits(), "--by", "dana", "--reason", "as agreed")

    async def _run(self, *arguments):
        process = await asyncio.create_subprocess_exec(
            os.environ["TALLYGATE_BIN"], "approvals", *arguments, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await process.communicate()
        assert process.returncode == 0, (arguments, printed)
        return printed
