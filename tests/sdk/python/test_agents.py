"""Agent loops of real libraries against the running product: what is allowed works as without a
proxy; what is refused ends or goes on as the contract says, and nobody asks again blindly.

Each scenario is a method; each library and mode is a class.
"""

import asyncio
import unittest

import drivers
from support import JUDGES, NO_JUDGE, Approver, fresh_key, sent_upstream

OSLO = 'call get_weather {"city":"Oslo"}'
ROME = 'call get_weather {"city":"Rome"}'
DELETE = 'call delete_files {"path":"/"}'


class Scenarios:
    driver = None

    async def asyncSetUp(self):
        # On in unittest, where it prints a line for every step that takes long.
        asyncio.get_running_loop().set_debug(False)

    def agent(self, policy="tools-strip"):
        agent = self.driver(fresh_key(policy))
        self.addAsyncCleanup(agent.close)
        return agent

    def assert_sent(self, agent, requests, refused=0):
        """How often the library asked; all but what was refused went to the provider, once."""
        self.assertEqual(agent.wire.requests, requests)
        self.assertEqual(sent_upstream(agent.key, requests), requests - refused)

    async def refusal(self, agent, *asked, status, code, **options):
        try:
            answer = await agent.run(*asked, **options)
        except Exception as error:
            seen_status, seen_code, message = agent.told(error)
            self.assertEqual((seen_status, seen_code), (status, code))
            return message
        self.fail(f"it was not refused: {answer}")


class AllowedCalls(Scenarios):
    async def test_a_call_makes_the_round_trip(self):
        agent = self.agent()
        answer = await agent.run(OSLO)
        self.assertEqual(agent.tools.ran, [("get_weather", "Oslo")])
        self.assertEqual(answer.text, "The tool answered: 4 degrees in Oslo")
        self.assert_sent(agent, 2)

    async def test_parallel_calls_are_all_run(self):
        agent = self.agent()
        answer = await agent.run(f"chunks 5\n{OSLO}\n{ROME}")
        self.assertCountEqual(agent.tools.ran, [("get_weather", "Oslo"), ("get_weather", "Rome")])
        self.assertIn("2 tools answered", answer.text)
        self.assert_sent(agent, 2)

    async def test_a_loop_of_several_turns_ends(self):
        agent = self.agent()
        answer = await agent.run(f"{OSLO}\nthen\n{ROME}\nthen\nsay It is colder in Oslo.")
        self.assertEqual(agent.tools.ran, [("get_weather", "Oslo"), ("get_weather", "Rome")])
        self.assertEqual(answer.text, "It is colder in Oslo.")
        self.assert_sent(agent, 3)

    async def test_a_conversation_goes_on(self):
        agent = self.agent()
        answer = await agent.run(OSLO)
        answer = await agent.run(ROME, history=answer.history)
        self.assertEqual(answer.text, "The tool answered: 4 degrees in Rome")
        self.assert_sent(agent, 4)

    async def test_text_arrives_while_the_call_after_it_is_still_to_come(self):
        if not self.driver.streams:
            self.skipTest("not a stream")
        agent = self.agent()
        text = await asyncio.wait_for(agent.first_text(f"say Look.\nsleep 60000\n{OSLO}"), 30)
        self.assertEqual(text, "Look.")
        await agent.close()
        self.assert_sent(agent, 1)


class Limits(Scenarios):
    async def test_a_budget_that_runs_out_in_a_loop_ends_it_at_once(self):
        agent = self.agent("one-request")
        message = await self.refusal(agent, OSLO, status=402, code="insufficient_quota")
        self.assertIn("daily_requests", message)
        self.assertIn("reset", message)
        self.assertEqual(agent.tools.ran, [("get_weather", "Oslo")])
        self.assert_sent(agent, 2, refused=1)

    async def test_a_rate_limit_is_waited_for(self):
        agent = self.agent("one-at-once")
        both = await asyncio.gather(agent.run("say one"), agent.run("say two"))
        self.assertEqual([answer.text for answer in both], ["one", "two"])
        self.assert_sent(agent, 3, refused=1)


@unittest.skipUnless(JUDGES, NO_JUDGE)
class HeldCalls(Scenarios):
    async def test_an_approved_call_goes_on_as_if_nothing_had_been(self):
        agent = self.agent("tools-approval")
        answer, _ = await asyncio.gather(agent.run(DELETE), Approver(agent.key).decides("approve"))
        self.assertEqual(agent.tools.ran, [("delete_files", "/")])
        self.assertEqual(answer.text, "The tool answered: deleted")
        self.assert_sent(agent, 2)

    async def test_a_rejected_call_ends_the_run_with_the_reason(self):
        agent = self.agent("tools-approval")
        answer, _ = await asyncio.gather(agent.run(DELETE), Approver(agent.key).decides("reject"))
        self.assertEqual(agent.tools.ran, [])
        self.assertRegex(answer.text, "rejected this call .*: as agreed")
        self.assert_sent(agent, 1)

    async def test_who_leaves_and_comes_back_gets_the_same_answer(self):
        agent = self.agent("tools-approval")
        approver = Approver(agent.key)
        run = asyncio.ensure_future(agent.run(DELETE))
        await approver.waits()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await approver.decides("approve")
        answer = await agent.run(DELETE)
        self.assertEqual(agent.tools.ran, [("delete_files", "/")])
        self.assertEqual(answer.text, "The tool answered: deleted")
        self.assertEqual(sent_upstream(agent.key, 3), 2)


@unittest.skipUnless(JUDGES, NO_JUDGE)
class BlockedCalls(Scenarios):
    BLOCKED = r'Blocked by Tallygate: (?s:.*)"{}" \({}\): (?s:.*) Decision dec_\w+'
    NOT_ALLOWED = "(tool_not_allowlisted|unknown_tool)"

    def assert_blocked(self, text, tool="delete_files", code=NOT_ALLOWED):
        self.assertRegex(text, self.BLOCKED.format(tool, code))

    async def test_a_blocked_call_ends_the_run_with_the_reason(self):
        agent = self.agent()
        answer = await agent.run(DELETE)
        self.assert_blocked(answer.text)
        self.assertEqual(agent.tools.ran, [])
        self.assert_sent(agent, 1)

    async def test_the_text_before_a_blocked_call_is_kept(self):
        agent = self.agent()
        answer = await agent.run(f"say Let me see.\n{DELETE}")
        self.assertTrue(answer.text.startswith("Let me see."), answer.text)
        self.assert_blocked(answer.text)
        self.assert_sent(agent, 1)

    async def test_calls_that_no_library_could_run_do_not_reach_it(self):
        orders = [
            ("call format_disk {}", "format_disk", "unknown_tool"),
            ('call get_weather {"town":"Oslo"}', "get_weather", "schema_invalid"),
            ('call get_weather {"city":', "get_weather", "malformed_output"),
        ]
        for order, tool, code in orders:
            with self.subTest(code):
                agent = self.agent()
                answer = await agent.run(order)
                self.assert_blocked(answer.text, tool, code)
                self.assertEqual(agent.tools.ran, [])
                self.assert_sent(agent, 1)

    async def test_a_blocked_call_withholds_its_siblings(self):
        agent = self.agent()
        answer = await agent.run(f"{OSLO}\n{DELETE}\n{ROME}")
        self.assert_blocked(answer.text)
        self.assertEqual(agent.tools.ran, [])
        self.assert_sent(agent, 1)

    async def test_the_siblings_of_a_blocked_call_go_on_where_the_policy_says_so(self):
        agent = self.agent("tools-each")
        answer = await agent.run(f"{OSLO}\n{DELETE}\n{ROME}")
        self.assertCountEqual(agent.tools.ran, [("get_weather", "Oslo"), ("get_weather", "Rome")])
        if self.driver.text_ends_run:
            self.assert_blocked(answer.text)
            self.assert_sent(agent, 1)
        else:
            self.assertIn("2 tools answered", answer.text)
            self.assert_sent(agent, 2)

    async def test_a_call_blocked_in_a_later_turn_ends_the_loop(self):
        agent = self.agent()
        answer = await agent.run(f"{OSLO}\nthen\n{DELETE}")
        self.assert_blocked(answer.text)
        self.assertEqual(agent.tools.ran, [("get_weather", "Oslo")])
        self.assert_sent(agent, 2)

    async def test_the_conversation_goes_on_after_a_blocked_call(self):
        agent = self.agent()
        answer = await agent.run(DELETE)
        answer = await agent.run(OSLO, history=answer.history)
        self.assertEqual(agent.tools.ran, [("get_weather", "Oslo")])
        self.assertEqual(answer.text, "The tool answered: 4 degrees in Oslo")
        self.assert_sent(agent, 3)

    async def test_a_blocked_call_is_an_error_where_the_request_forces_one(self):
        agent = self.agent()
        order = {"status": 403, "code": "tool_call_blocked", "forced": True}
        self.assertIn("delete_files", await self.refusal(agent, DELETE, **order))
        self.assertEqual(agent.tools.ran, [])
        self.assert_sent(agent, 1)

    async def test_a_blocked_call_is_an_error_where_the_policy_says_so(self):
        agent = self.agent("tools-error")
        order = {"status": 403, "code": "tool_call_blocked"}
        self.assertIn("delete_files", await self.refusal(agent, DELETE, **order))
        self.assertEqual(agent.tools.ran, [])
        self.assert_sent(agent, 1)

    async def test_an_error_after_text_ends_the_stream(self):
        if not self.driver.streams:
            self.skipTest("not a stream")
        agent = self.agent("tools-error")
        with self.assertRaises(Exception) as caught:
            await agent.run(f"say Let me see.\n{DELETE}")
        self.assertIn("delete_files", agent.told(caught.exception)[2])
        self.assertEqual(agent.tools.ran, [])
        self.assert_sent(agent, 1)

    async def test_an_offer_of_a_tool_that_is_not_allowed_is_refused(self):
        agent = self.agent("tools-refuse")
        order = {"status": 403, "code": "tool_not_allowlisted"}
        self.assertIn("delete_files", await self.refusal(agent, OSLO, **order))
        self.assert_sent(agent, 1, refused=1)


def load_tests(loader, _standard, _pattern):
    """A class for each library and group of scenarios, named after both."""
    groups = [AllowedCalls, Limits, HeldCalls, BlockedCalls]
    suite = unittest.TestSuite()
    for driver in [*drivers.CHAT, *drivers.RESPONSES]:
        for group in groups:
            kind = (group, unittest.IsolatedAsyncioTestCase)
            members = {"driver": driver, "__module__": __name__}
            case = type(f"{driver.__name__}_{group.__name__}", kind, members)
            if driver in drivers.RESPONSES:
                case = unittest.skipUnless(JUDGES, NO_JUDGE)(case)
            suite.addTests(loader.loadTestsFromTestCase(case))
    return suite


if __name__ == "__main__":
    unittest.main(verbosity=2)
