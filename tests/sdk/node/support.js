// What the tests share: fresh keys, counted requests, the tools, the ledger.

import { execFile } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

export const URL = process.env.TALLYGATE_URL;
export const JUDGES = process.env.TALLYGATE_JUDGES !== "0";
export const NO_JUDGE = "this binary does not judge calls (TALLYGATE_JUDGES=0)";

const LEDGER_TIMEOUT_MS = 10_000;
const LEDGER = ["ledger", "tail", "--json", "--lines", "1000"];
const ENDINGS = ["request_settled", "request_refused"];

const numbers = {};

// A key of this policy that no test has used: limits and records are its own.
export function freshKey(policy) {
  numbers[policy] = (numbers[policy] ?? 0) + 1;
  return `tg-${policy}-${numbers[policy]}`;
}

// A fetch that counts what is really sent, retries included.
export function wire() {
  const counted = { requests: 0 };
  counted.fetch = (...request) => {
    counted.requests += 1;
    return fetch(...request);
  };
  return counted;
}

// The tools of an agent, and what was really run.
export function tools() {
  const ran = [];
  const run = (name, answer) => (given) => {
    ran.push([name, given]);
    return answer(given);
  };
  return {
    ran,
    getWeather: run("get_weather", ({ city }) => `4 degrees in ${city}`),
    deleteFiles: run("delete_files", () => "deleted"),
  };
}

// What the ledger holds of a key, once so many requests of it have ended.
export async function records(key, requests) {
  const name = key.replace(/^tg-/, "");
  const deadline = Date.now() + LEDGER_TIMEOUT_MS;
  for (;;) {
    const { stdout } = await promisify(execFile)(process.env.TALLYGATE_BIN, LEDGER);
    const lines = stdout.split("\n").filter(Boolean).map((line) => JSON.parse(line));
    const found = lines.filter((record) => record.key === name);
    const ended = found.filter((record) => ENDINGS.includes(record.kind));
    if (ended.length >= requests) return found;
    if (Date.now() > deadline) {
      throw new Error(`not ${requests} requests of ${name} have ended: ${JSON.stringify(found)}`);
    }
    await sleep(20);
  }
}

// How many of the requests of this key went to a provider.
export async function sentUpstream(key, requests) {
  const found = await records(key, requests);
  return found.filter(({ kind, resumes }) => kind === "request_started" && !resumes).length;
}

// A person at a terminal.
export function approver(key) {
  const name = key.replace(/^tg-/, "");
  const run = async (...line) => {
    const { stdout } = await promisify(execFile)(process.env.TALLYGATE_BIN, ["approvals", ...line]);
    return stdout;
  };
  const waits = async () => {
    const deadline = Date.now() + LEDGER_TIMEOUT_MS;
    while (Date.now() < deadline) {
      const waiting = JSON.parse(await run("list", "--json"));
      const own = waiting.find((approval) => approval.key === name);
      if (own) return own.id;
      await sleep(50);
    }
    throw new Error(`no call of ${name} waits`);
  };
  const decides = async (decision) => {
    await run(decision, await waits(), "--by", "dana", "--reason", "as agreed");
  };
  return { waits, decides };
}
