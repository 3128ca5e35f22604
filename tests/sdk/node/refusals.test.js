// Every refusal that `refusals.json` can provoke, as the official SDK shows it: its status, its
// code and our words, after one request. Each row is asked for streamed and not.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import OpenAI from "openai";

import { freshKey, JUDGES, NO_JUDGE, URL, wire } from "./support.js";

const ROWS = JSON.parse(readFileSync(new globalThis.URL("../refusals.json", import.meta.url)));
const RETRIES = 2;

const KINDS = {
  400: OpenAI.BadRequestError,
  401: OpenAI.AuthenticationError,
  403: OpenAI.PermissionDeniedError,
  404: OpenAI.NotFoundError,
  409: OpenAI.ConflictError,
  422: OpenAI.UnprocessableEntityError,
  429: OpenAI.RateLimitError,
};

for (const row of ROWS) {
  for (const stream of row.whole || row.get ? [false] : [false, true]) {
    const skip = row.judges && !JUDGES ? NO_JUDGE : false;
    test(`${row.name}${stream ? ", streamed" : ""}`, { skip }, () => check(row, stream));
  }
}

async function check(row, stream) {
  const counted = wire();
  const client = new OpenAI({
    baseURL: URL,
    apiKey: row.key ?? freshKey(row.policy ?? "anything"),
    fetch: counted.fetch,
    maxRetries: row.retried ? 0 : RETRIES,
  });
  const opened = await prepare(client, row);
  let error;
  for (let left = row.times ?? 1; left > 0 && error?.status !== row.status; left -= 1) {
    const before = counted.requests;
    error = await ask(client, row, stream).then(
      () => assert.fail("it was not refused"),
      (error) => error,
    );
    assert.equal(counted.requests - before, 1, "requests sent");
  }
  opened?.controller.abort();
  assertTold(row, error);
}

function assertTold(row, error) {
  const server = row.status >= 500 ? OpenAI.InternalServerError : OpenAI.APIError;
  assert.equal(error.constructor, KINDS[row.status] ?? server, `${error}`);
  assert.equal(error.status, row.status);
  assert.ok(error.message.includes(row.says), error.message);
  assert.ok(error.requestID, "an x-request-id");
  for (const member of ["code", "type", "param"]) {
    if (member in row) assert.equal(error[member], row[member], member);
  }
}

// Uses up what the row needs used up.
async function prepare(client, row) {
  if (row.first) await ask(client, { text: row.first }, false);
  if (!row.open) return;
  const opened = await ask(client, { text: row.open, model: "sandbox-agent" }, true);
  await opened[Symbol.asyncIterator]().next();
  return opened;
}

async function ask(client, row, stream) {
  const headers = row.headers ?? {};
  if (row.get) return client.get(row.get, { headers });
  const content = row.chars ? "a".repeat(row.chars) : (row.text ?? "hi");
  return client.chat.completions.create(
    {
      model: row.model ?? "sandbox-echo",
      messages: [{ role: "user", content }],
      stream,
      ...(row.tools && { tools: row.tools.map(tool) }),
      ...row.members,
    },
    { headers },
  );
}

function tool(name) {
  return { type: "function", function: { name, parameters: { type: "object" } } };
}
