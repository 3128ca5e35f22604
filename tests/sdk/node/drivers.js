// An agent with two tools in each Node library and mode, behind one interface.
//
// `run(order)` goes on until the library says that the agent is done. `firstText(order)` reads the
// first text of a streamed answer and hangs up. `told(error)` gives status, code and message of a
// refusal, as the library shows them.

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { tool as langChainTool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

import { tools, URL, wire } from "./support.js";

const MODEL = "sandbox-agent";
const CITY = z.object({ city: z.string() });
const PATH = z.object({ path: z.string() });
const MOST_STEPS = 10;

class OpenAiSdk {
  static streams = false;

  constructor(key) {
    this.key = key;
    this.wire = wire();
    this.tools = tools();
    this.client = new OpenAI({ baseURL: URL, apiKey: key, fetch: this.wire.fetch });
  }

  asked(messages, forced) {
    const { getWeather, deleteFiles } = this.tools;
    return {
      model: MODEL,
      messages,
      tools: [
        runnable("get_weather", "city", getWeather),
        runnable("delete_files", "path", deleteFiles),
      ],
      ...(forced && { tool_choice: "required" }),
    };
  }

  async run(order, { history = [], forced = false } = {}) {
    const messages = [...history, { role: "user", content: order }];
    const runner = this.start(this.asked(messages, forced));
    return { text: await runner.finalContent(), history: runner.messages };
  }

  start(asked) {
    return this.client.chat.completions.runTools(asked);
  }

  told(error) {
    return { status: error.status, code: error.code, message: error.message };
  }
}

class OpenAiSdkStreamed extends OpenAiSdk {
  static streams = true;

  start(asked) {
    return this.client.chat.completions.runTools({ ...asked, stream: true });
  }

  async firstText(order) {
    const { messages, model, tools } = this.asked([{ role: "user", content: order }]);
    const offered = tools.map((tool) => ({ ...tool, function: described(tool.function) }));
    const stream = this.client.chat.completions.stream({ messages, model, tools: offered });
    for await (const chunk of stream) {
      const text = chunk.choices[0]?.delta.content;
      if (!text) continue;
      stream.abort();
      return text;
    }
  }
}

class OpenAiSdkResponses extends OpenAiSdk {
  async run(order, { history = [], forced = false } = {}) {
    const input = [...history, { role: "user", content: order }];
    const { tools: offered, ...asked } = this.asked([], forced);
    delete asked.messages;
    asked.tools = offered.map((tool) => ({ type: "function", ...described(tool.function) }));
    for (;;) {
      const response = await this.answer({ ...asked, input });
      input.push(...response.output);
      const calls = response.output.filter(({ type }) => type === "function_call");
      if (!calls.length) return { text: response.output_text, history: input };
      for (const call of calls) {
        const { function: run } = offered.find((tool) => tool.function.name === call.name).function;
        const output = run(JSON.parse(call.arguments));
        input.push({ type: "function_call_output", call_id: call.call_id, output });
      }
    }
  }

  answer(asked) {
    return this.client.responses.create(asked);
  }
}

class OpenAiSdkResponsesStreamed extends OpenAiSdkResponses {
  static streams = true;

  answer(asked) {
    return this.client.responses.stream(asked).finalResponse();
  }

  async firstText(order) {
    const stream = this.client.responses.stream({ model: MODEL, input: order });
    for await (const event of stream) {
      if (event.type !== "response.output_text.delta") continue;
      stream.abort();
      return event.delta;
    }
  }
}

// A tool as the runner takes it.
function runnable(name, argument, run) {
  const parameters = {
    type: "object",
    properties: { [argument]: { type: "string" } },
    required: [argument],
  };
  return { type: "function", function: { name, parameters, parse: JSON.parse, function: run } };
}

function described({ name, parameters }) {
  return { name, parameters };
}

class AiSdk {
  static streams = false;

  // `bait` stands in for the two tools: `ran`, and `offered()` as the library takes tools.
  constructor(key, { bait, run } = {}) {
    this.key = key;
    this.wire = wire();
    this.tools = bait ?? tools();
    this.headers = run ? { "X-Run-Id": run } : {};
  }

  get options() {
    return { baseURL: URL, apiKey: this.key, fetch: this.wire.fetch, headers: this.headers };
  }

  offered() {
    const { getWeather, deleteFiles, offered } = this.tools;
    return offered?.() ?? {
      get_weather: tool({ inputSchema: CITY, execute: getWeather }),
      delete_files: tool({ inputSchema: PATH, execute: deleteFiles }),
    };
  }

  model() {
    return createOpenAI(this.options).chat(MODEL);
  }

  asked(messages, forced, more = {}) {
    return {
      model: this.model(),
      messages,
      tools: this.offered(),
      toolChoice: forced ? "required" : "auto",
      stopWhen: stepCountIs(MOST_STEPS),
      ...more,
    };
  }

  async run(order, { history = [], forced = false } = {}) {
    const messages = [...history, { role: "user", content: order }];
    const { text, response } = await this.answer(messages, forced);
    return { text, history: [...messages, ...response.messages] };
  }

  answer(messages, forced) {
    return generateText(this.asked(messages, forced));
  }

  told(error) {
    const body = JSON.parse(error.responseBody ?? JSON.stringify({ error }));
    return { status: error.statusCode, code: body.error.code, message: error.message };
  }
}

class AiSdkStreamed extends AiSdk {
  static streams = true;

  // An error is a part of the stream: nothing is thrown.
  async answer(messages, forced) {
    let failure;
    const onError = ({ error }) => {
      failure = error;
    };
    const result = streamText(this.asked(messages, forced, { onError }));
    await result.consumeStream({ onError: () => {} });
    if (failure) throw failure;
    return { text: await result.text, response: await result.response };
  }

  async firstText(order) {
    const stop = new AbortController();
    const messages = [{ role: "user", content: order }];
    const { signal: abortSignal } = stop;
    const result = streamText(this.asked(messages, false, { abortSignal, onError: () => {} }));
    for await (const text of result.textStream) {
      stop.abort();
      return text;
    }
  }
}

class AiSdkCompatible extends AiSdk {
  model() {
    return createOpenAICompatible({ name: "tallygate", ...this.options })(MODEL);
  }
}

class AiSdkCompatibleStreamed extends AiSdkStreamed {
  model() {
    return createOpenAICompatible({ name: "tallygate", ...this.options })(MODEL);
  }
}

class AiSdkResponses extends AiSdk {
  model() {
    return createOpenAI(this.options).responses(MODEL);
  }
}

class AiSdkResponsesStreamed extends AiSdkStreamed {
  model() {
    return createOpenAI(this.options).responses(MODEL);
  }
}

class LangChain {
  static streams = false;
  // It waits by its own clock, which doubles, and not for as long as it is told.
  static ownClock = true;

  constructor(key) {
    this.key = key;
    this.wire = wire();
    this.tools = tools();
    const { getWeather, deleteFiles } = this.tools;
    this.functions = [
      langChainTool(getWeather, { name: "get_weather", schema: CITY }),
      langChainTool(deleteFiles, { name: "delete_files", schema: PATH }),
    ];
  }

  model(forced) {
    const configuration = { baseURL: URL, fetch: this.wire.fetch };
    const model = new ChatOpenAI({ model: MODEL, apiKey: this.key, configuration });
    return model.bindTools(this.functions, forced ? { tool_choice: "required" } : {});
  }

  async run(order, { history = [], forced = false } = {}) {
    const messages = [...history, { role: "user", content: order }];
    const model = this.model(forced);
    for (;;) {
      const message = await this.answer(model, messages);
      messages.push(message);
      if (!message.tool_calls.length) return { text: message.text, history: messages };
      for (const call of message.tool_calls) {
        const asked = this.functions.find(({ name }) => name === call.name);
        messages.push(await asked.invoke(call));
      }
    }
  }

  answer(model, messages) {
    return model.invoke(messages);
  }

  told(error) {
    return { status: error.status, code: error.code, message: error.message };
  }
}

class LangChainStreamed extends LangChain {
  static streams = true;

  async answer(model, messages) {
    let whole;
    for await (const chunk of await model.stream(messages)) whole = whole?.concat(chunk) ?? chunk;
    return whole;
  }

  async firstText(order) {
    const stop = new AbortController();
    const messages = [{ role: "user", content: order }];
    const stream = await this.model().stream(messages, { signal: stop.signal });
    for await (const chunk of stream) {
      if (!chunk.text) continue;
      stop.abort();
      return chunk.text;
    }
  }
}

export const CHAT = {
  "OpenAI SDK, runTools": OpenAiSdk,
  "OpenAI SDK, runTools streamed": OpenAiSdkStreamed,
  "AI SDK, openai, generateText": AiSdk,
  "AI SDK, openai, streamText": AiSdkStreamed,
  "AI SDK, openai-compatible, generateText": AiSdkCompatible,
  "AI SDK, openai-compatible, streamText": AiSdkCompatibleStreamed,
  "LangChain, invoke": LangChain,
  "LangChain, stream": LangChainStreamed,
};
export const RESPONSES = {
  "OpenAI SDK, Responses": OpenAiSdkResponses,
  "OpenAI SDK, Responses streamed": OpenAiSdkResponsesStreamed,
  "AI SDK, Responses, generateText": AiSdkResponses,
  "AI SDK, Responses, streamText": AiSdkResponsesStreamed,
};
