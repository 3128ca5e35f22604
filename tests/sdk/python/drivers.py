"""An agent with two tools in each Python library and mode, behind one interface.

`run(order)` goes on until the library says that the agent is done. `first_text(order)` reads the
first text of a streamed answer and hangs up.
"""

import dataclasses
import json
import typing

import agents
import langchain_core.tools
import openai
import pydantic_ai
from langchain_openai import ChatOpenAI
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from support import URL, Tools, Wire

MODEL = "sandbox-agent"

agents.set_tracing_disabled(True)


@dataclasses.dataclass
class Answer:
    text: str
    # The conversation in the library's own form, for the next run.
    history: list


class Driver:
    streams = False
    # The library takes the first text for the end of the run, though calls follow it.
    text_ends_run = False

    def __init__(self, key, tools=None, run=None):
        self.key, self.wire, self.tools = key, Wire(), tools or Tools()
        self.functions = self.tools.functions()
        self.headers = {"X-Run-Id": run} if run else {}

    async def close(self):
        self.wire.sync.close()
        await self.wire.aio.aclose()

    def client(self):
        return openai.AsyncOpenAI(
            base_url=URL, api_key=self.key, http_client=self.wire.aio,
            default_headers=self.headers,
        )

    def told(self, error):
        """Status, code and message of a refusal, as the library shows them."""
        assert isinstance(error, openai.APIError), repr(error)
        return getattr(error, "status_code", None), error.code, str(error)


class OpenAISDK(Driver):
    """The loop that people write by hand."""

    async def run(self, order, history=(), forced=False):
        history = [*history, {"role": "user", "content": order}]
        while True:
            message = await self.answer(messages=history, **offers(CHAT_TOOLS, forced))
            calls = message.tool_calls or []
            history.append(spoken(message.content, calls))
            if not calls:
                return Answer(message.content, history)
            for call in calls:
                answer = self.use(call.function.name, call.function.arguments)
                history.append({"role": "tool", "tool_call_id": call.id, "content": answer})

    async def answer(self, **asked):
        answer = await self.client().chat.completions.create(model=MODEL, **asked)
        return answer.choices[0].message

    def use(self, name, arguments):
        (function,) = [one for one in self.functions if one.__name__ == name]
        return function(**json.loads(arguments))


class OpenAISDKStreamed(OpenAISDK):
    streams = True

    async def answer(self, **asked):
        async with self.client().chat.completions.stream(model=MODEL, **asked) as stream:
            answer = await stream.get_final_completion()
        return answer.choices[0].message

    async def first_text(self, order):
        asked = {"messages": [{"role": "user", "content": order}], "tools": CHAT_TOOLS}
        async with self.client().chat.completions.stream(model=MODEL, **asked) as stream:
            async for event in stream:
                if event.type == "content.delta" and event.delta:
                    return event.delta


class OpenAISDKResponses(OpenAISDK):
    async def run(self, order, history=(), forced=False):
        history = [*history, {"role": "user", "content": order}]
        while True:
            response = await self.answer(input=history, **offers(RESPONSES_TOOLS, forced))
            history += [item.model_dump(exclude_none=True) for item in response.output]
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return Answer(response.output_text, history)
            for call in calls:
                answer = {"call_id": call.call_id, "output": self.use(call.name, call.arguments)}
                history.append({"type": "function_call_output", **answer})

    async def answer(self, **asked):
        return await self.client().responses.create(model=MODEL, **asked)


class OpenAISDKResponsesStreamed(OpenAISDKResponses):
    streams = True

    async def answer(self, **asked):
        async with self.client().responses.stream(model=MODEL, **asked) as stream:
            return await stream.get_final_response()

    async def first_text(self, order):
        async with self.client().responses.stream(model=MODEL, input=order) as stream:
            async for event in stream:
                if event.type == TEXT_DELTA:
                    return event.delta


class OpenAIAgents(Driver):
    model: typing.Any = agents.OpenAIChatCompletionsModel

    def agent(self, forced=False):
        return agents.Agent(
            "helper",
            model=self.model(model=MODEL, openai_client=self.client()),
            tools=[agents.function_tool(function) for function in self.functions],
            model_settings=agents.ModelSettings(tool_choice="required" if forced else None),
        )

    async def run(self, order, history=(), forced=False):
        asked = [*history, {"role": "user", "content": order}]
        result = await self.result(self.agent(forced), asked)
        return Answer(self.text(result), result.to_input_list())

    def text(self, result):
        return result.final_output

    async def result(self, agent, asked):
        return await agents.Runner.run(agent, asked)


class OpenAIAgentsStreamed(OpenAIAgents):
    streams = True

    async def result(self, agent, asked):
        result = agents.Runner.run_streamed(agent, asked)
        async for _event in result.stream_events():
            pass
        return result

    async def first_text(self, order):
        result = agents.Runner.run_streamed(self.agent(), order)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == TEXT_DELTA:
                result.cancel()
                return event.data.delta


class ResponsesModel:
    model = agents.OpenAIResponsesModel

    def text(self, result):
        # The final output is the last message alone; the reason of a block is one of its own.
        return "\n\n".join(
            agents.ItemHelpers.text_message_output(item)
            for item in result.new_items
            if isinstance(item, agents.MessageOutputItem)
        )


class OpenAIAgentsResponses(ResponsesModel, OpenAIAgents):
    pass


class OpenAIAgentsResponsesStreamed(ResponsesModel, OpenAIAgentsStreamed):
    pass


class LangChain(Driver):
    def model(self, forced=False):
        model = ChatOpenAI(
            model=MODEL, base_url=URL, api_key=self.key, default_headers=self.headers,
            http_client=self.wire.sync, http_async_client=self.wire.aio,
        )
        choice = {"tool_choice": "required"} if forced else {}
        return model.bind_tools(self.functions, **choice)

    async def run(self, order, history=(), forced=False):
        model, history = self.model(forced), [*history, ("user", order)]
        tools = {tool.name: tool for tool in map(langchain_core.tools.tool, self.functions)}
        while True:
            message = await self.answer(model, history)
            history.append(message)
            if not message.tool_calls:
                return Answer(message.text, history)
            history += [await tools[call["name"]].ainvoke(call) for call in message.tool_calls]

    async def answer(self, model, history):
        return await model.ainvoke(history)


class LangChainStreamed(LangChain):
    streams = True

    async def answer(self, model, history):
        whole = None
        async for chunk in model.astream(history):
            whole = chunk if whole is None else whole + chunk
        return whole

    async def first_text(self, order):
        stream = self.model().astream(order)
        async for chunk in stream:
            if chunk.text:
                await stream.aclose()
                return chunk.text


class PydanticAI(Driver):
    model: typing.Any = OpenAIChatModel

    def agent(self, forced=False):
        # A structured output is a tool that the request forces.
        return pydantic_ai.Agent(
            self.model(MODEL, provider=OpenAIProvider(openai_client=self.client())),
            tools=self.functions,
            output_type=Report if forced else str,
        )

    async def run(self, order, history=(), forced=False):
        result = await self.agent(forced).run(order, message_history=list(history))
        return Answer(result.output, result.all_messages())

    def told(self, error):
        assert isinstance(error, pydantic_ai.exceptions.ModelAPIError), repr(error)
        body = getattr(error, "body", None) or {}
        return getattr(error, "status_code", None), body.get("code"), str(error)


class PydanticAIStreamed(PydanticAI):
    streams = True
    text_ends_run = True

    async def run(self, order, history=(), forced=False):
        asked = {"message_history": list(history)}
        async with self.agent(forced).run_stream(order, **asked) as result:
            text = await result.get_output()
        return Answer(text, result.all_messages())

    async def first_text(self, order):
        async with self.agent().run_stream(order) as result:
            async for piece in result.stream_text(delta=True, debounce_by=None):
                return piece


class PydanticAIResponses(PydanticAI):
    model = OpenAIResponsesModel


@dataclasses.dataclass
class Report:
    """What the agent has found."""

    summary: str


def offers(tools, forced):
    return {"tools": tools, **({"tool_choice": "required"} if forced else {})}


def spoken(content, calls):
    """The assistant's turn, as it goes into the history."""
    kept = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.function.name, "arguments": call.function.arguments},
        }
        for call in calls
    ]
    turn = {"role": "assistant", "content": content}
    return turn | {"tool_calls": kept} if kept else turn


def schema(name, argument):
    parameters = {
        "type": "object",
        "properties": {argument: {"type": "string"}},
        "required": [argument],
    }
    return {"name": name, "parameters": parameters}


SCHEMAS = [schema("get_weather", "city"), schema("delete_files", "path")]
CHAT_TOOLS = [{"type": "function", "function": one} for one in SCHEMAS]
RESPONSES_TOOLS = [{"type": "function", **one} for one in SCHEMAS]
TEXT_DELTA = "response.output_text.delta"

CHAT = [
    OpenAISDK, OpenAISDKStreamed,
    OpenAIAgents, OpenAIAgentsStreamed,
    LangChain, LangChainStreamed,
    PydanticAI, PydanticAIStreamed,
]
RESPONSES = [
    OpenAISDKResponses, OpenAISDKResponsesStreamed,
    OpenAIAgentsResponses, OpenAIAgentsResponsesStreamed,
    PydanticAIResponses,
]
