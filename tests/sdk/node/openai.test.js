// The official Node SDK against the running product: what it must see, answered or refused.

import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI from "openai";

const DEMO = "tg-demo-key";
const WEATHER = {
  type: "function",
  function: {
    name: "get_weather",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};
const ORDER = 'call get_weather {"city":"Oslo"}';

const user = (content) => [{ role: "user", content }];
const textOf = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");

// A client that knows how many requests it really sent, retries included.
function open(apiKey = DEMO, options = {}) {
  const counted = { requests: 0 };
  counted.client = new OpenAI({
    baseURL: process.env.TALLYGATE_URL,
    apiKey,
    fetch: (...request) => {
      counted.requests += 1;
      return fetch(...request);
    },
    ...options,
  });
  counted.chat = counted.client.chat.completions;
  counted.ask = (text, members = {}) =>
    counted.chat.create({ model: "sandbox-echo", messages: user(text), ...members });
  return counted;
}

async function collect(stream) {
  const chunks = [];
  for await (const chunk of await stream) chunks.push(chunk);
  return chunks;
}

// The error of one refused call, checked for what every refusal has.
async function refusal(counted, call, kind, code) {
  const before = counted.requests;
  const error = await call().then(() => assert.fail("it was not refused"), (error) => error);
  assert.ok(error instanceof kind, `${error}`);
  assert.equal(error.code, code);
  assert.equal(counted.requests - before, 1, "requests sent");
  assert.ok(error.error.message);
  assert.ok(error.requestID, "an x-request-id");
  return error;
}

test("a chat is answered with usage", async () => {
  const answer = await open().ask("Good morning, gate.");
  assert.equal(answer.choices[0].message.content, "Good morning, gate.");
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.ok(answer.usage.total_tokens > 0);
});

test("a stream that did not ask for usage gets none", async () => {
  const chunks = await collect(open().ask("one two three", { stream: true }));
  assert.ok(chunks.every((chunk) => chunk.choices.length === 1 && !chunk.usage));
  assert.equal(textOf(chunks), "one two three");
  assert.equal(chunks.at(-1).choices[0].finish_reason, "stop");
});

test("a stream that asked for usage ends with it", async () => {
  const asked = { stream: true, stream_options: { include_usage: true } };
  const chunks = await collect(open().ask("one two three", asked));
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.ok(chunks.at(-1).usage.completion_tokens > 0);
  assert.equal(textOf(chunks), "one two three");
});

test("the stream helper puts the answer together", async () => {
  const stream = open().chat.stream({ model: "sandbox-echo", messages: user("put together") });
  assert.equal(await stream.finalContent(), "put together");
});

test("a tool call makes the round trip through the tool runner", async () => {
  const asked = [];
  const weather = (city) => {
    asked.push(city);
    return "4 degrees, snow";
  };
  const tool = { ...WEATHER.function, parse: JSON.parse, function: weather };
  const runner = open().chat.runTools({
    model: "sandbox-agent",
    messages: user(ORDER),
    tools: [{ type: "function", function: tool }],
  });
  assert.match(await runner.finalContent(), /4 degrees/);
  assert.deepEqual(asked, [{ city: "Oslo" }]);
});

test("a streamed tool call is put together by the helper", async () => {
  const messages = user(`chunks 5\n${ORDER}`);
  const stream = open().chat.stream({ model: "sandbox-agent", messages, tools: [WEATHER] });
  const final = await stream.finalChatCompletion();
  const [call] = final.choices[0].message.tool_calls;
  assert.equal(call.function.name, "get_weather");
  assert.deepEqual(JSON.parse(call.function.arguments), { city: "Oslo" });
  assert.equal(final.choices[0].finish_reason, "tool_calls");
});

test("a long text arrives whole", async () => {
  const text = Array.from({ length: 2500 }, (_, number) => `line ${number} ünï`).join("\n");
  const whole = { max_completion_tokens: 16384 };
  const counted = open();
  assert.equal((await counted.ask(text, whole)).choices[0].message.content, text);
  const chunks = await collect(counted.ask(text, { ...whole, stream: true }));
  assert.equal(textOf(chunks), text);
});

test("many at once each get their own answer", async () => {
  const counted = open(DEMO, { maxRetries: 0 });
  const texts = Array.from({ length: 8 }, (_, number) => `answer number ${number}`);
  const answers = await Promise.all(texts.map((text) => counted.ask(text)));
  assert.deepEqual(answers.map((answer) => answer.choices[0].message.content), texts);
});

test("the models are those the key may use", async () => {
  const { client } = open();
  const names = [];
  for await (const model of client.models.list()) names.push(model.id);
  assert.ok(names.includes("sandbox-echo") && names.includes("sandbox-agent"), `${names}`);
  assert.ok(!names.some((name) => name === "gpt-4" || name.includes("*")), `${names}`);
  assert.equal((await client.models.retrieve("sandbox-echo")).id, "sandbox-echo");
  await assert.rejects(client.models.retrieve("gpt-4"), OpenAI.NotFoundError);
});

test("a wrong key is told whose key is wrong", async () => {
  const counted = open("sk-of-somebody-else");
  const call = () => counted.ask("hi");
  const error = await refusal(counted, call, OpenAI.AuthenticationError, "invalid_api_key");
  assert.match(error.message, /Tallygate/);
});

test("a denied model is refused", async () => {
  const counted = open();
  const call = () => counted.ask("hi", { model: "gpt-4" });
  await refusal(counted, call, OpenAI.PermissionDeniedError, "model_denied");
});

test("an unknown model is not found", async () => {
  const counted = open();
  const call = () => counted.ask("hi", { model: "sandbox-nothing" });
  await refusal(counted, call, OpenAI.NotFoundError, "model_not_found");
});

test("a used up budget is refused once", async () => {
  const counted = open("tg-one-request-0");
  await counted.ask("the only one");
  const call = () => counted.ask("one too many");
  const error = await refusal(counted, call, OpenAI.APIError, "insufficient_quota");
  assert.equal(error.status, 402);
  assert.equal(error.type, "insufficient_quota");
  assert.match(error.message, /reset/);
});

test("a rate limit says when to come back", async () => {
  const counted = open("tg-one-a-minute-0", { maxRetries: 0 });
  await counted.ask("the only one");
  const call = () => counted.ask("too soon");
  const error = await refusal(counted, call, OpenAI.RateLimitError, "rate_limit_exceeded");
  const seconds = Number(error.headers.get("retry-after"));
  assert.ok(Number.isInteger(seconds) && seconds >= 1 && seconds <= 60, `${seconds}`);
});

test("an unknown path is not found", async () => {
  await assert.rejects(open().client.get("/nothing/here"), OpenAI.NotFoundError);
});

test("the status of a failing provider is kept", async () => {
  const counted = open(DEMO, { maxRetries: 0 });
  const fails = (status) => counted.ask(`fail ${status}`, { model: "sandbox-agent" });
  await assert.rejects(fails(500), OpenAI.InternalServerError);
  await assert.rejects(fails(400), OpenAI.BadRequestError);
});

test("a stream that breaks off is an error and no end", async () => {
  const counted = open(DEMO, { maxRetries: 0 });
  const asked = { model: "sandbox-agent", stream: true };
  const stream = counted.ask("say one two three four five six\nbreak", asked);
  await assert.rejects(collect(stream), OpenAI.APIError);
});
