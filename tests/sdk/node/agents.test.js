// Agent loops of real libraries against the running product: what is allowed works as without a
// proxy; what is refused ends or goes on as the contract says, and nobody asks again blindly.

import assert from "node:assert/strict";
import { suite, test } from "node:test";

import { CHAT, RESPONSES } from "./drivers.js";
import { approver, freshKey, JUDGES, NO_JUDGE, records, sentUpstream } from "./support.js";

const OSLO = 'call get_weather {"city":"Oslo"}';
const ROME = 'call get_weather {"city":"Rome"}';
const DELETE = 'call delete_files {"path":"/"}';
const RAN_OSLO = ["get_weather", { city: "Oslo" }];
const RAN_ROME = ["get_weather", { city: "Rome" }];
const NOT_ALLOWED = "(tool_not_allowlisted|unknown_tool)";

const noJudge = JUDGES ? false : NO_JUDGE;

// How often the library asked; all but what was refused went to the provider, once.
async function assertSent(agent, requests, refused = 0) {
  assert.equal(agent.wire.requests, requests, "requests sent");
  assert.equal(await sentUpstream(agent.key, requests), requests - refused, "sent upstream");
}

function assertBlocked(text, tool = "delete_files", code = NOT_ALLOWED) {
  const reason = `Blocked by Tallygate: .*"${tool}" \\(${code}\\): .* Decision dec_\\w+`;
  assert.match(text, new RegExp(reason, "s"));
}

async function refusal(agent, order, status, code, options) {
  const error = await agent.run(order, options).then(
    (answer) => assert.fail(`it was not refused: ${answer.text}`),
    (error) => error,
  );
  const told = agent.told(error);
  assert.deepEqual([told.status, told.code], [status, code], `${error}`);
  return told.message;
}

function allowedCalls(open) {
  test("a call makes the round trip", async () => {
    const agent = open();
    const answer = await agent.run(OSLO);
    assert.deepEqual(agent.tools.ran, [RAN_OSLO]);
    assert.equal(answer.text, "The tool answered: 4 degrees in Oslo");
    await assertSent(agent, 2);
  });

  test("parallel calls are all run", async () => {
    const agent = open();
    const answer = await agent.run(`chunks 5\n${OSLO}\n${ROME}`);
    assert.deepEqual(agent.tools.ran, [RAN_OSLO, RAN_ROME]);
    assert.match(answer.text, /2 tools answered/);
    await assertSent(agent, 2);
  });

  test("a loop of several turns ends", async () => {
    const agent = open();
    const answer = await agent.run(`${OSLO}\nthen\n${ROME}\nthen\nsay It is colder in Oslo.`);
    assert.deepEqual(agent.tools.ran, [RAN_OSLO, RAN_ROME]);
    assert.equal(answer.text, "It is colder in Oslo.");
    await assertSent(agent, 3);
  });

  test("a conversation goes on", async () => {
    const agent = open();
    const { history } = await agent.run(OSLO);
    const answer = await agent.run(ROME, { history });
    assert.equal(answer.text, "The tool answered: 4 degrees in Rome");
    await assertSent(agent, 4);
  });
}

function streamedText(open) {
  test("text arrives while the call after it is still to come", { timeout: 30_000 }, async () => {
    const agent = open();
    assert.equal(await agent.firstText(`say Look.\nsleep 60000\n${OSLO}`), "Look.");
    await assertSent(agent, 1);
  });
}

function limits(open, ownClock) {
  test("a budget that runs out in a loop ends it at once", async () => {
    const agent = open("one-request");
    const message = await refusal(agent, OSLO, 402, "insufficient_quota");
    assert.match(message, /daily_requests.*reset/);
    assert.deepEqual(agent.tools.ran, [RAN_OSLO]);
    await assertSent(agent, 2, 1);
  });

  test("a rate limit is waited for", async () => {
    const agent = open("one-at-once");
    const both = await Promise.all([agent.run("say one"), agent.run("say two")]);
    assert.deepEqual(both.map((answer) => answer.text), ["one", "two"]);
    if (!ownClock) return assertSent(agent, 3, 1);
    const { requests } = agent.wire;
    const found = await records(agent.key, requests);
    assert.equal(found.filter((record) => record.kind === "request_started").length, 2);
  });
}

function heldCalls(open) {
  test("an approved call goes on as if nothing had been", async () => {
    const agent = open("tools-approval");
    const decides = approver(agent.key).decides("approve");
    const [answer] = await Promise.all([agent.run(DELETE), decides]);
    assert.deepEqual(agent.tools.ran, [["delete_files", { path: "/" }]]);
    assert.equal(answer.text, "The tool answered: deleted");
    await assertSent(agent, 2);
  });

  test("a rejected call ends the run with the reason", async () => {
    const agent = open("tools-approval");
    const decides = approver(agent.key).decides("reject");
    const [answer] = await Promise.all([agent.run(DELETE), decides]);
    assert.deepEqual(agent.tools.ran, []);
    assert.match(answer.text, /rejected this call .*: as agreed/);
    await assertSent(agent, 1);
  });
}

function blockedCalls(open) {
  test("a blocked call ends the run with the reason", async () => {
    const agent = open();
    const answer = await agent.run(DELETE);
    assertBlocked(answer.text);
    assert.deepEqual(agent.tools.ran, []);
    await assertSent(agent, 1);
  });

  test("the text before a blocked call is kept", async () => {
    const agent = open();
    const answer = await agent.run(`say Let me see.\n${DELETE}`);
    assert.match(answer.text, /^Let me see\./);
    assertBlocked(answer.text);
    await assertSent(agent, 1);
  });

  for (const [order, tool, code] of [
    ["call format_disk {}", "format_disk", "unknown_tool"],
    ['call get_weather {"town":"Oslo"}', "get_weather", "schema_invalid"],
    ['call get_weather {"city":', "get_weather", "malformed_output"],
  ]) {
    test(`a call that no library could run does not reach it: ${code}`, async () => {
      const agent = open();
      const answer = await agent.run(order);
      assertBlocked(answer.text, tool, code);
      assert.deepEqual(agent.tools.ran, []);
      await assertSent(agent, 1);
    });
  }

  test("a blocked call withholds its siblings", async () => {
    const agent = open();
    const answer = await agent.run(`${OSLO}\n${DELETE}\n${ROME}`);
    assertBlocked(answer.text);
    assert.deepEqual(agent.tools.ran, []);
    await assertSent(agent, 1);
  });

  test("the siblings of a blocked call go on where the policy says so", async () => {
    const agent = open("tools-each");
    const answer = await agent.run(`${OSLO}\n${DELETE}\n${ROME}`);
    assert.deepEqual(agent.tools.ran, [RAN_OSLO, RAN_ROME]);
    assert.match(answer.text, /2 tools answered/);
    await assertSent(agent, 2);
  });

  test("a call blocked in a later turn ends the loop", async () => {
    const agent = open();
    const answer = await agent.run(`${OSLO}\nthen\n${DELETE}`);
    assertBlocked(answer.text);
    assert.deepEqual(agent.tools.ran, [RAN_OSLO]);
    await assertSent(agent, 2);
  });

  test("the conversation goes on after a blocked call", async () => {
    const agent = open();
    const { history } = await agent.run(DELETE);
    const answer = await agent.run(OSLO, { history });
    assert.deepEqual(agent.tools.ran, [RAN_OSLO]);
    assert.equal(answer.text, "The tool answered: 4 degrees in Oslo");
    await assertSent(agent, 3);
  });

  test("a blocked call is an error where the request forces one", async () => {
    const agent = open();
    const message = await refusal(agent, DELETE, 403, "tool_call_blocked", { forced: true });
    assert.match(message, /delete_files/);
    assert.deepEqual(agent.tools.ran, []);
    await assertSent(agent, 1);
  });

  test("a blocked call is an error where the policy says so", async () => {
    const agent = open("tools-error");
    const message = await refusal(agent, DELETE, 403, "tool_call_blocked");
    assert.match(message, /delete_files/);
    assert.deepEqual(agent.tools.ran, []);
    await assertSent(agent, 1);
  });

  test("an offer of a tool that is not allowed is refused", async () => {
    const agent = open("tools-refuse");
    const message = await refusal(agent, OSLO, 403, "tool_not_allowlisted");
    assert.match(message, /delete_files/);
    await assertSent(agent, 1, 1);
  });
}

function blockedAfterText(open) {
  test("an error after text ends the stream", async () => {
    const agent = open("tools-error");
    const error = await agent.run(`say Let me see.\n${DELETE}`).then(
      (answer) => assert.fail(`it was not refused: ${answer.text}`),
      (error) => error,
    );
    assert.match(agent.told(error).message, /delete_files/);
    assert.deepEqual(agent.tools.ran, []);
    await assertSent(agent, 1);
  });
}

function scenarios(name, Driver, skip = false) {
  const open = (policy = "tools-strip") => new Driver(freshKey(policy));
  suite(name, { skip }, () => {
    allowedCalls(open);
    limits(open, Driver.ownClock);
    if (Driver.streams) streamedText(open);
    suite("blocked calls", { skip: noJudge }, () => {
      heldCalls(open);
      blockedCalls(open);
      if (Driver.streams) blockedAfterText(open);
    });
  });
}

for (const [name, driver] of Object.entries(CHAT)) scenarios(name, driver);
for (const [name, driver] of Object.entries(RESPONSES)) scenarios(name, driver, noJudge);
