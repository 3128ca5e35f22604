"""The Responses API of the official Python SDK, its stream helper, and the Agents SDK on top."""

import asyncio
import unittest

import openai
from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled

from support import URL, Tools, Wire, fresh_key

POLICY = "anything"
MODEL = "sandbox-agent"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
ALLOWED = 'call get_weather {"city": "Oslo"}'
# Nobody offered this tool.
BLOCKED = 'call delete_files {"path": "/secret"}'


class Responses(unittest.TestCase):
    def setUp(self):
        self.wire = Wire()
        self.client = openai.OpenAI(
            base_url=URL, api_key=fresh_key(POLICY), http_client=self.wire.sync
        )
        self.addCleanup(self.client.close)

    def create(self, text, **members):
        return self.client.responses.create(
            model=MODEL, input=text, tools=[WEATHER], **members
        )

    def stream(self, text, **members):
        """The events and the final response of the SDK's helper."""
        with self.client.responses.stream(
            model=MODEL, input=text, tools=[WEATHER], **members
        ) as stream:
            events = list(stream)
            final = stream.get_final_response()
        numbers = [event.sequence_number for event in events]
        self.assertEqual(numbers, sorted(set(numbers)))
        return events, final

    def test_text_and_usage_are_the_same_whole_and_streamed(self):
        whole = self.create("say Hello there.")
        events, final = self.stream("say Hello there.")
        self.assertEqual(whole.output_text, "Hello there.")
        self.assertEqual(final.output_text, "Hello there.")
        self.assertEqual(final.usage.total_tokens, whole.usage.total_tokens)
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        self.assertGreater(len(deltas), 1)

    def test_an_allowed_call_arrives_whole_and_streamed(self):
        calls = [
            [item for item in response.output if item.type == "function_call"]
            for response in (self.create(f"say Look:\n{ALLOWED}"), self.stream(f"say Look:\n{ALLOWED}")[1])
        ]
        for call, in calls:
            self.assertEqual((call.name, call.arguments), ("get_weather", '{"city": "Oslo"}'))
        events, _ = self.stream(ALLOWED)
        done = [e for e in events if e.type == "response.function_call_arguments.done"]
        self.assertEqual([event.arguments for event in done], ['{"city": "Oslo"}'])

    def test_a_blocked_call_is_a_message_whole_and_streamed(self):
        for text in (BLOCKED, f"say Before.\n{BLOCKED}\nsay After.", f"{ALLOWED}\n{BLOCKED}"):
            with self.subTest(text):
                events, final = self.stream(text)
                for response in (self.create(text), final):
                    self.assertEqual({item.type for item in response.output}, {"message"})
                    self.assertIn("Blocked by Tallygate", response.output_text)
                    self.assertEqual(response.model_extra.get("guard", {}).get("code", "unknown_tool"), "unknown_tool")
                seen = repr(events)
                self.assertNotIn("/secret", seen)

    def test_a_refusal_can_be_gone_on_with(self):
        first = self.create(BLOCKED)
        history = [{"role": "user", "content": BLOCKED}, *first.output, {"role": "user", "content": "say Fine."}]
        self.assertEqual(self.create(history).output_text, "Fine.")

    def test_a_forced_call_that_is_blocked_is_one_exception(self):
        for call in (lambda: self.create(BLOCKED, tool_choice="required"),
                     lambda: self.stream(BLOCKED, tool_choice="required")):
            before = self.wire.requests
            with self.assertRaises(openai.PermissionDeniedError) as caught:
                call()
            self.assertEqual(caught.exception.code, "tool_call_blocked")
            self.assertEqual(self.wire.requests, before + 1)

    def test_an_answer_that_breaks_off_is_an_exception_of_the_helper(self):
        with self.assertRaises(openai.APIError) as caught:
            self.stream("say One two three four.\nbreak")
        self.assertEqual(caught.exception.code, "upstream_broken")

    def test_only_own_answers_can_be_built_on(self):
        first = self.create("say One.")
        second = self.create("say Two.", previous_response_id=first.id)
        self.assertEqual(second.output_text, "Two.")
        with openai.OpenAI(base_url=URL, api_key=fresh_key(POLICY)) as other:
            for id in (first.id, "resp_never"):
                with self.assertRaises(openai.NotFoundError) as caught:
                    other.responses.create(model=MODEL, input="say Three.", previous_response_id=id)
                self.assertEqual(caught.exception.code, "response_not_found")


class AgentsSdk(unittest.TestCase):
    def run_agent(self, text, streamed):
        set_tracing_disabled(True)
        wire, tools = Wire(), Tools()
        client = openai.AsyncOpenAI(base_url=URL, api_key=fresh_key(POLICY), http_client=wire.aio)
        agent = Agent(
            name="agent",
            model=OpenAIResponsesModel(model=MODEL, openai_client=client),
            tools=[function_tool(tools.get_weather)],
        )

        async def run():
            async with client:
                if not streamed:
                    return (await Runner.run(agent, text, max_turns=3)).final_output
                result = Runner.run_streamed(agent, text, max_turns=3)
                async for _ in result.stream_events():
                    pass
                return result.final_output

        return asyncio.run(run()), tools.ran, wire.requests

    def test_an_allowed_call_runs_and_the_loop_ends(self):
        for streamed in (False, True):
            answer, ran, requests = self.run_agent(ALLOWED, streamed)
            self.assertEqual(ran, [("get_weather", "Oslo")])
            self.assertIn("4 degrees in Oslo", answer)
            self.assertEqual(requests, 2)

    def test_a_blocked_call_ends_the_loop_with_its_reason(self):
        for streamed in (False, True):
            answer, ran, requests = self.run_agent(BLOCKED, streamed)
            self.assertEqual((ran, requests), ([], 1))
            self.assertIn("Blocked by Tallygate", answer)


if __name__ == "__main__":
    unittest.main()
