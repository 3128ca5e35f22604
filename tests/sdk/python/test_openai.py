"""The official Python SDK against the running product: what it must see, answered or refused."""

import concurrent.futures
import json
import os
import unittest

import openai

URL = os.environ["TALLYGATE_URL"]
DEMO = "tg-demo-key"

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


class Counted:
    """A client that knows how many requests it really sent, retries included."""

    def __init__(self, key=DEMO, **options):
        self.requests = 0
        http = openai.DefaultHttpxClient(event_hooks={"request": [self._count]})
        self.client = openai.OpenAI(base_url=URL, api_key=key, http_client=http, **options)
        self.chat = self.client.chat.completions

    def _count(self, _request):
        self.requests += 1

    def ask(self, text, model="sandbox-echo", **members):
        return self.chat.create(model=model, messages=user(text), **members)


def user(text):
    return [{"role": "user", "content": text}]


class Case(unittest.TestCase):
    """Closes what each test opened."""

    def open(self, key=DEMO, **options):
        counted = Counted(key, **options)
        self.addCleanup(counted.client.close)
        return counted

    def refusal(self, kind, call, *, code, counted, requests=1):
        """The error of one refused call, checked for what every refusal has."""
        before = counted.requests
        with self.assertRaises(kind) as caught:
            call()
        error = caught.exception
        self.assertEqual(error.code, code)
        self.assertEqual(counted.requests - before, requests, "requests sent")
        self.assertIsInstance(error.body, dict)
        self.assertTrue(error.body["message"])
        self.assertTrue(error.request_id, "an x-request-id")
        return error


class Answers(Case):
    def test_a_chat_is_answered_with_usage(self):
        answer = self.open().ask("Good morning, gate.")
        self.assertEqual(answer.choices[0].message.content, "Good morning, gate.")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.object, "chat.completion")
        self.assertGreater(answer.usage.prompt_tokens, 0)
        self.assertEqual(
            answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens
        )

    def test_each_answer_has_an_id_of_its_own(self):
        client = self.open()
        self.assertNotEqual(client.ask("same").id, client.ask("same").id)

    def test_a_stream_that_did_not_ask_for_usage_gets_none(self):
        with self.open().ask("one two three", stream=True) as stream:
            chunks = list(stream)
        self.assertTrue(all(len(chunk.choices) == 1 for chunk in chunks))
        self.assertTrue(all(chunk.usage is None for chunk in chunks))
        self.assertEqual(text_of(chunks), "one two three")
        self.assertEqual(chunks[-1].choices[0].finish_reason, "stop")
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)

    def test_a_stream_that_asked_for_usage_ends_with_it(self):
        options = {"include_usage": True}
        with self.open().ask("one two three", stream=True, stream_options=options) as stream:
            chunks = list(stream)
        self.assertEqual(chunks[-1].choices, [])
        self.assertGreater(chunks[-1].usage.completion_tokens, 0)
        self.assertEqual(text_of(chunks[:-1]), "one two three")

    def test_the_stream_helper_puts_the_answer_together(self):
        chat = self.open().chat
        with chat.stream(model="sandbox-echo", messages=user("to be put together")) as stream:
            deltas = [event.delta for event in stream if event.type == "content.delta"]
            final = stream.get_final_completion()
        self.assertEqual("".join(deltas), "to be put together")
        self.assertEqual(final.choices[0].message.content, "to be put together")

    def test_several_choices_are_all_there(self):
        answer = self.open().ask("twice", n=2)
        self.assertEqual([choice.message.content for choice in answer.choices], ["twice"] * 2)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1])

    def test_an_output_cap_is_obeyed(self):
        answer = self.open().ask("word " * 200, max_completion_tokens=20)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertLessEqual(answer.usage.completion_tokens, 20)

    def test_a_long_text_arrives_whole(self):
        text = "".join(f"line {number} ünï\n" for number in range(2500)).strip()
        whole = {"max_completion_tokens": 16_384}
        client = self.open()
        self.assertEqual(client.ask(text, **whole).choices[0].message.content, text)
        with client.ask(text, stream=True, **whole) as stream:
            self.assertEqual(text_of(list(stream)), text)

    def test_many_at_once_each_get_their_own_answer(self):
        client = self.open(max_retries=0)
        texts = [f"answer number {number}" for number in range(24)]
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(client.ask, texts))
        self.assertEqual([answer.choices[0].message.content for answer in answers], texts)


class ToolCalls(Case):
    ORDER = 'call get_weather {"city":"Oslo"}'

    def test_a_tool_call_makes_the_round_trip(self):
        client = self.open()
        answer = client.ask(self.ORDER, model="sandbox-agent", tools=[WEATHER])
        message = answer.choices[0].message
        self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
        (call,) = message.tool_calls
        self.assertEqual(call.function.name, "get_weather")
        self.assertEqual(json.loads(call.function.arguments), {"city": "Oslo"})
        result = {"role": "tool", "tool_call_id": call.id, "content": "4 degrees, snow"}
        history = [*user(self.ORDER), message.model_dump(exclude_none=True), result]
        end = client.chat.create(model="sandbox-agent", messages=history, tools=[WEATHER])
        self.assertEqual(end.choices[0].finish_reason, "stop")
        self.assertIn("4 degrees", end.choices[0].message.content)

    def test_a_streamed_tool_call_is_put_together_by_the_helper(self):
        chat, order = self.open().chat, f"chunks 5\n{self.ORDER}"
        ask = {"model": "sandbox-agent", "messages": user(order), "tools": [WEATHER]}
        with chat.stream(**ask) as stream:
            final = stream.get_final_completion()
        (call,) = final.choices[0].message.tool_calls
        self.assertEqual(call.function.name, "get_weather")
        self.assertEqual(json.loads(call.function.arguments), {"city": "Oslo"})
        self.assertEqual(final.choices[0].finish_reason, "tool_calls")

    def test_parallel_calls_keep_their_order(self):
        order = f'{self.ORDER}\ncall get_weather {{"city":"Rome"}}'
        answer = self.open().ask(order, model="sandbox-agent", tools=[WEATHER])
        calls = answer.choices[0].message.tool_calls
        cities = [json.loads(call.function.arguments)["city"] for call in calls]
        self.assertEqual(cities, ["Oslo", "Rome"])


class Models(Case):
    def test_the_list_names_what_the_key_may_use(self):
        names = [model.id for model in self.open().client.models.list()]
        self.assertIn("sandbox-echo", names)
        self.assertIn("sandbox-agent", names)
        self.assertNotIn("gpt-4", names)
        self.assertFalse([name for name in names if "*" in name])

    def test_one_model_can_be_looked_up(self):
        model = self.open().client.models.retrieve("sandbox-echo")
        self.assertEqual((model.id, model.object), ("sandbox-echo", "model"))

    def test_a_model_that_is_denied_cannot_be_looked_up(self):
        client = self.open()
        with self.assertRaises(openai.NotFoundError):
            client.client.models.retrieve("gpt-4")
        self.assertEqual(client.requests, 1)


class Refusals(Case):
    def test_a_wrong_key_is_told_whose_key_is_wrong(self):
        client = self.open("sk-of-somebody-else")
        error = self.refusal(
            openai.AuthenticationError, lambda: client.ask("hi"),
            code="invalid_api_key", counted=client,
        )
        self.assertIn("Tallygate", error.body["message"])
        self.assertNotIn("sk-of-somebody-else", str(error))

    def test_a_denied_model_is_refused(self):
        client = self.open()
        error = self.refusal(
            openai.PermissionDeniedError, lambda: client.ask("hi", model="gpt-4"),
            code="model_denied", counted=client,
        )
        self.assertIn("gpt-4", error.body["message"])

    def test_an_unknown_model_is_not_found(self):
        client = self.open()
        self.refusal(
            openai.NotFoundError, lambda: client.ask("hi", model="sandbox-nothing"),
            code="model_not_found", counted=client,
        )

    def test_a_used_up_budget_is_refused_once_and_says_when_it_frees_up(self):
        client = self.open("tg-one-request-0")
        client.ask("the only one")
        error = self.refusal(
            openai.APIStatusError, lambda: client.ask("one too many"),
            code="insufficient_quota", counted=client,
        )
        self.assertEqual((error.status_code, error.type), (402, "insufficient_quota"))
        self.assertEqual(error.response.headers["x-should-retry"], "false")
        self.assertIn("reset", error.body["message"])
        self.assertNotIn("rate limit", error.body["message"].lower())

    def test_a_request_that_the_money_cannot_cover_is_refused_before_it_streams(self):
        client = self.open("tg-no-money-0")
        error = self.refusal(
            openai.APIStatusError, lambda: client.ask("hi", stream=True),
            code="insufficient_quota", counted=client,
        )
        self.assertEqual(error.status_code, 402)

    def test_a_rate_limit_says_when_to_come_back(self):
        client = self.open("tg-one-a-minute-0", max_retries=0)
        client.ask("the only one")
        error = self.refusal(
            openai.RateLimitError, lambda: client.ask("too soon"),
            code="rate_limit_exceeded", counted=client,
        )
        headers = error.response.headers
        self.assertIn(int(headers["retry-after"]), range(1, 61))
        self.assertGreater(int(headers["retry-after-ms"]), 0)

    def test_an_unknown_path_is_not_found(self):
        client = self.open()
        with self.assertRaises(openai.NotFoundError) as caught:
            client.client.get("/nothing/here", cast_to=object)
        self.assertTrue(caught.exception.body["message"])
        self.assertEqual(client.requests, 1)

    def test_an_input_that_is_too_long_is_refused(self):
        client = self.open()
        self.refusal(
            openai.BadRequestError, lambda: client.ask("a" * 200_001),
            code="context_length_exceeded", counted=client,
        )

    def test_a_request_of_wrong_types_is_refused(self):
        client = self.open()
        with self.assertRaises(openai.BadRequestError) as caught:
            client.ask("hi", max_completion_tokens="many")
        self.assertTrue(caught.exception.body["message"])


class Failures(Case):
    def test_the_status_of_a_failing_provider_is_kept(self):
        client = self.open(max_retries=0)
        kinds = {
            400: openai.BadRequestError,
            422: openai.UnprocessableEntityError,
            500: openai.InternalServerError,
            503: openai.InternalServerError,
        }
        for status, kind in kinds.items():
            with self.subTest(status=status), self.assertRaises(kind) as caught:
                client.ask(f"fail {status}", model="sandbox-agent")
            self.assertEqual(caught.exception.status_code, status)
            self.assertIn(str(status), caught.exception.body["message"])

    def test_a_stream_that_fails_before_it_begins_is_an_error_too(self):
        with self.assertRaises(openai.InternalServerError):
            self.open(max_retries=0).ask("fail 500", model="sandbox-agent", stream=True)

    def test_an_answer_that_breaks_off_is_an_error(self):
        with self.assertRaises(openai.APIError):
            self.open(max_retries=0).ask("say one two\nbreak", model="sandbox-agent")

    def test_a_stream_that_breaks_off_is_an_error_and_no_end(self):
        client, pieces = self.open(max_retries=0), []
        order = "say one two three four five six\nbreak"
        with self.assertRaises(openai.APIError) as caught:
            with client.ask(order, model="sandbox-agent", stream=True) as stream:
                pieces.extend(stream)
        self.assertTrue(text_of(pieces), "what came before the break has arrived")
        self.assertTrue(caught.exception.message)


def text_of(chunks):
    deltas = (choice.delta.content for chunk in chunks for choice in chunk.choices)
    return "".join(delta or "" for delta in deltas)


if __name__ == "__main__":
    unittest.main(verbosity=2)
