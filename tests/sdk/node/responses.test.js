// The Responses API of the official Node SDK, its stream helper, and the AI SDK on top.

import assert from "node:assert/strict";
import { test } from "node:test";

import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";

import { URL, freshKey, wire } from "./support.js";

const POLICY = "anything";
const MODEL = "sandbox-agent";
const PARAMETERS = { type: "object", properties: { city: { type: "string" } } };
const WEATHER = { type: "function", name: "get_weather", parameters: PARAMETERS, strict: false };
const ALLOWED = 'call get_weather {"city":"Oslo"}';
// Nobody offered this tool.
const BLOCKED = 'call delete_files {"path":"/secret"}';

function open() {
  const counted = wire();
  const client = new OpenAI({ baseURL: URL, apiKey: freshKey(POLICY), fetch: counted.fetch });
  const request = (input, more) => ({ model: MODEL, input, tools: [WEATHER], ...more });
  return {
    counted,
    client,
    create: (input, more) => client.responses.create(request(input, more)),
    // The events and the final response of the SDK's helper.
    async stream(input, more) {
      const stream = client.responses.stream(request(input, more));
      const events = [];
      for await (const event of stream) events.push(event);
      const numbers = events.map((event) => event.sequence_number);
      assert.ok(numbers.every((number, at) => at === 0 || number > numbers[at - 1]));
      return { events, final: await stream.finalResponse() };
    },
  };
}

const types = (response) => [...new Set(response.output.map((item) => item.type))];

test("text and usage are the same whole and streamed", async () => {
  const { create, stream } = open();
  const whole = await create("say Hello there.");
  const { final } = await stream("say Hello there.");
  assert.equal(whole.output_text, "Hello there.");
  assert.equal(final.output_text, "Hello there.");
  assert.deepEqual(final.usage, whole.usage);
});

test("an allowed call arrives whole and streamed", async () => {
  const { create, stream } = open();
  const text = `say Look:\n${ALLOWED}`;
  for (const response of [await create(text), (await stream(text)).final]) {
    assert.equal(response.output[0].content[0].text, "Look:");
    assert.equal(response.output[1].name, "get_weather");
    assert.equal(response.output[1].arguments, '{"city":"Oslo"}');
  }
});

test("a blocked call is a message whole and streamed", async () => {
  const { create, stream } = open();
  for (const text of [BLOCKED, `say Before.\n${BLOCKED}\nsay After.`, `${ALLOWED}\n${BLOCKED}`]) {
    const { events, final } = await stream(text);
    for (const response of [await create(text), final]) {
      assert.deepEqual(types(response), ["message"]);
      assert.match(response.output_text ?? JSON.stringify(response), /Blocked by Tallygate/);
    }
    assert.doesNotMatch(JSON.stringify(events), /\/secret/);
  }
});

test("a forced call that is blocked is one exception", async () => {
  const { counted, create, stream } = open();
  for (const call of [create, stream]) {
    const before = counted.requests;
    const refused = await call(BLOCKED, { tool_choice: "required" }).then(
      () => assert.fail("it was not refused"),
      (error) => error,
    );
    assert.ok(refused instanceof OpenAI.PermissionDeniedError, `${refused}`);
    assert.equal(refused.code, "tool_call_blocked");
    assert.equal(counted.requests, before + 1);
  }
});

test("an answer that breaks off is an exception of the helper", async () => {
  const { stream } = open();
  await assert.rejects(stream("say One two three four.\nbreak"), /broke off/);
});

function aiSdk() {
  const counted = wire();
  const openai = createOpenAI({ baseURL: URL, apiKey: freshKey(POLICY), fetch: counted.fetch });
  const ran = [];
  const get_weather = tool({
    description: "The weather in a city.",
    inputSchema: jsonSchema(PARAMETERS),
    execute: ({ city }) => {
      ran.push(city);
      return `4 degrees in ${city}`;
    },
  });
  const model = openai.responses(MODEL);
  return { counted, ran, asked: { model, tools: { get_weather }, stopWhen: stepCountIs(3) } };
}

test("the AI SDK runs an allowed call and refers to the items it got", async () => {
  for (const run of [generateText, streamText]) {
    const { counted, ran, asked } = aiSdk();
    const result = run({ ...asked, prompt: ALLOWED });
    const text = await (await result).text;
    assert.deepEqual(ran, ["Oslo"]);
    assert.match(text, /4 degrees in Oslo/);
    assert.equal(counted.requests, 2);
  }
});

test("a blocked call ends the AI SDK's loop with its reason", async () => {
  for (const run of [generateText, streamText]) {
    const { counted, ran, asked } = aiSdk();
    const result = run({ ...asked, prompt: BLOCKED });
    assert.match(await (await result).text, /Blocked by Tallygate/);
    assert.deepEqual(ran, []);
    assert.equal(counted.requests, 1);
  }
});
