// The console in a real browser. Chromium is Debian's `chromium`, or what CHROMIUM names; with
// TALLYGATE_SCREENSHOTS a picture of every page, light and dark, is left in that directory.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { chromium } from "playwright-core";

import { KEYS, TOKENS, chat, replace, startServer } from "./console-server.js";

const EXECUTABLE = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((path) => path && existsSync(path));
const PICTURES = process.env.TALLYGATE_SCREENSHOTS;
const PATIENCE_MS = 15_000;
const EVIL = "<img src=x onerror=\"document.title='owned'\">";

let browser;
let server;

before(async () => {
  assert.ok(EXECUTABLE, "no Chromium: install Debian's `chromium`, or name one in CHROMIUM");
  browser = await chromium.launch({ executablePath: EXECUTABLE, args: process.getuid() === 0 ? ["--no-sandbox"] : [] });
  server = await startServer({ past: Boolean(PICTURES) });
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

/** A page in a browser of its own. A test fails if the page logs an error or loads from elsewhere. */
async function open(at = server, options = {}) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  page.troubles = [];
  page.on("pageerror", (error) => page.troubles.push(String(error)));
  page.on("console", (message) => {
    const expected = /status of (401|403|429)/.test(message.text());
    if (message.type() === "error" && !expected) page.troubles.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(at.url)) page.troubles.push(`asked for ${request.url()}`);
  });
  await page.goto(at.url);
  return page;
}

async function close(page) {
  const { troubles } = page;
  await page.context().close();
  assert.deepEqual(troubles, []);
}

async function signedIn(role = "operator", options = {}) {
  const page = await open(server, options);
  await page.getByLabel("Operator token").fill(TOKENS[role]);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Activity" }).waitFor();
  return page;
}

const go = (page, name) => page.getByRole("navigation").getByRole("link", { name }).click();

describe("signing in", () => {
  test("a wrong token opens nothing and says so", async () => {
    const page = await open();
    await page.getByLabel("Operator token").fill("tgo-wrong");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").filter({ hasText: "No operator has this token." }).waitFor();
    assert.equal(await page.getByRole("navigation").count(), 0);
    await close(page);
  });

  test("a token opens the console, the cookie cannot be read, signing out ends it", async () => {
    const page = await signedIn();
    assert.equal(await page.evaluate(() => document.cookie), "");
    const [cookie] = await page.context().cookies();
    assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, "Strict"]);
    await page.reload();
    await page.getByRole("heading", { name: "Activity" }).waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Operator token").waitFor();
    await page.context().addCookies([cookie]);
    await page.reload();
    await page.getByLabel("Operator token").waitFor();
    await close(page);
  });

  test("without operators the page says how to make one", async () => {
    const bare = await startServer({ operators: false });
    const page = await open(bare);
    await page.getByRole("heading", { name: "Nobody may sign in yet" }).waitFor();
    await page.getByText("tallygate keys new --operator --name me --role operator").waitFor();
    await picture(page, "no-operators");
    await close(page);
    await bare.stop();
  });
});

describe("roles", () => {
  test("a viewer sees no button for what a viewer may not do, and the server refuses it too", async () => {
    const page = await signedIn("viewer");
    await go(page, "Policies");
    await page.getByRole("heading", { name: "agents" }).waitFor();
    assert.equal(await page.getByRole("button", { name: "Read the files again" }).count(), 0);
    await go(page, "Ledger");
    await page.getByText("The role operator may export").waitFor();
    const status = await page.evaluate(async () => {
      const answer = await fetch("/admin/v1/reload", { method: "POST", headers: { "x-tallygate-console": "1" } });
      return answer.status;
    });
    assert.equal(status, 403);
    await close(page);
  });
});

describe("activity", () => {
  test("a request appears without a reload, and its page shows the whole path", async () => {
    const page = await signedIn("viewer");
    const tools = ["get_weather", "delete_files"].map((name) => ({ type: "function", function: { name, parameters: { type: "object" } } }));
    const { status } = await chat(server, KEYS.research, 'call get_weather {"city":"Oslo"}', { tools: tools.slice(0, 1) });
    assert.equal(status, 200);
    const { id } = await chat(server, KEYS.research, 'say before\ncall rm_rf {"path":"/"}', { tools: tools.slice(0, 1) });
    const row = page.locator(`tr:has(a[href*="${id}"])`);
    await row.waitFor();
    assert.match(await row.innerText(), /research/);
    await row.getByRole("link").click();
    await page.getByRole("heading", { name: id }).waitFor();
    const text = await page.locator(".path").innerText();
    for (const wanted of ["Admitted", "Reserved", "rm_rf", "Blocked", "unknown_tool", "Settled"]) {
      assert.ok(text.includes(wanted), `${wanted} in ${text}`);
    }
    await page.getByRole("link", { name: "agents@2" }).waitFor();
    await close(page);
  });

  test("filters narrow what is shown, and stand in the address", async () => {
    await chat(server, KEYS.support, "hi", { model: "gpt-4" });
    const page = await signedIn("viewer");
    await page.getByLabel("Code", { exact: true }).fill("model_denied");
    await page.getByLabel("Code", { exact: true }).press("Enter");
    await page.waitForURL(/code=model_denied/);
    await page.locator("tbody tr", { hasText: "model_denied" }).first().waitFor();
    assert.equal(await page.locator("tbody tr", { hasText: "completed" }).count(), 0);
    await page.getByLabel("Key", { exact: true }).fill("nobody");
    await page.getByLabel("Key", { exact: true }).press("Enter");
    await page.getByText("Nothing matches.").waitFor();
    await close(page);
  });

  test("what clients and models name stays text", async () => {
    const page = await signedIn("viewer");
    await chat(server, KEYS.research, "hi", { model: EVIL });
    const row = page.locator("tbody tr", { hasText: "<img src=x" }).first();
    await row.waitFor();
    await row.getByRole("link").click();
    await page.locator(".path").waitFor();
    await page.getByText("Record", { exact: true }).first().click();
    const { id } = await chat(server, KEYS.research, `call ${EVIL.replaceAll(" ", "")} {}`);
    await page.goto(`${server.url}/#/requests/${id}`);
    await page.getByText("Blocked", { exact: true }).waitFor();
    for (const address of [`#/activity?key=${encodeURIComponent(EVIL)}`, `#/requests/${encodeURIComponent(EVIL)}`, `#/policies/${encodeURIComponent(EVIL)}`]) {
      await page.goto(`${server.url}/${address}`);
      await page.locator("main h1").first().waitFor();
    }
    assert.equal(await page.locator("img[src=x]").count(), 0);
    assert.doesNotMatch(await page.title(), /owned/);
    page.troubles = page.troubles.filter((trouble) => !/status of (400|404)/.test(trouble));
    await close(page);
  });
});

describe("spend", () => {
  test("limits are bars, and what was refused is counted", async () => {
    for (let turn = 0; turn < 5; turn++) await chat(server, KEYS.spent, "say hi");
    const page = await signedIn("viewer");
    await go(page, "Spend");
    const card = page.locator("article", { hasText: "spent" });
    const bar = card.getByRole("img", { name: /3 used, 0 reserved of 3/ });
    await bar.waitFor();
    const share = await bar.evaluate((bar) => bar.querySelector(".used").offsetWidth / bar.offsetWidth);
    assert.ok(share > 0.99, `${share}`);
    await page.locator("tr", { hasText: "insufficient_quota" }).filter({ hasText: "total_requests" }).waitFor();
    await page.locator(".chart rect.s0").first().waitFor();
    await page.getByRole("button", { name: "By key" }).click();
    await page.locator(".legend", { hasText: "spent" }).waitFor();
    await page.getByLabel("Find keys and tenants").fill("support");
    await card.waitFor({ state: "detached" });
    await close(page);
  });
});

describe("policies", () => {
  test("a refused reload is shown with its message, and goes when it is mended", async () => {
    const page = await signedIn("operator");
    await go(page, "Policies");
    const policy = page.locator("section", { has: page.getByRole("heading", { name: "agents" }) });
    const newest = policy.locator("details", { has: page.locator("summary", { hasText: "version 2" }) });
    await newest.locator("summary").click();
    await newest.getByText("requests_per_minute = 120").waitFor();
    await newest.getByLabel("Compare with").selectOption({ label: "changes since version 1" });
    await newest.locator("ins", { hasText: "requests_per_minute = 120" }).waitFor();

    const good = await readFile(server.file, "utf8");
    await replace(server.file, good.replace('policies_dir = "policies"', 'policies_dirr = "policies"'));
    const alert = page.getByRole("alert");
    await alert.filter({ hasText: "policies_dirr: unknown member; did you mean \"policies_dir\"?" }).waitFor();
    await picture(page, "policies-refused");
    await replace(server.file, good);
    await page.getByRole("button", { name: "Read the files again" }).click();
    await alert.waitFor({ state: "detached" });
    await close(page);
  });
});

describe("ledger", () => {
  test("the chain is verified from the page, and exported", async () => {
    const page = await signedIn("operator");
    await go(page, "Ledger");
    await page.getByRole("button", { name: "Verify the chain" }).click();
    await page.getByText("the chain holds").waitFor();
    const downloading = page.waitForEvent("download");
    await page.getByRole("link", { name: "Export" }).click();
    const text = await readFile(await (await downloading).path(), "utf8");
    const records = text.trim().split("\n").map((line) => JSON.parse(line));
    assert.deepEqual(records.map(({ seq }) => seq), records.map((_, place) => place + 1));
    await close(page);
  });
});

describe("approvals", () => {
  const tools = [{ type: "function", function: { name: "send_email", parameters: { type: "object" } } }];
  const order = (to) => `call send_email {"to":"${to}","subject":"<b>Q3</b>","body":"${EVIL.replaceAll('"', '\\"')}"}`;
  const ask = (to) => fetch(`${server.api}/chat/completions`, {
    method: "POST",
    headers: { authorization: "Bearer tg-demo-key", "content-type": "application/json" },
    body: JSON.stringify({ model: "sandbox-agent", messages: [{ role: "user", content: order(to) }], tools }),
  }).then((response) => response.json());

  test("a call arrives without a reload; approved, the waiting client goes on", async () => {
    const page = await signedIn("approver");
    await go(page, "Approvals");
    await page.getByText("No call waits for a person.").waitFor();
    const waiting = ask("ann@example.com");
    const card = page.getByRole("region", { name: "Call of send_email" });
    await card.getByText("ann@example.com").waitFor();
    await card.getByText("key demo, tenant demo").waitFor();
    assert.equal(await page.title(), "Approvals – Tallygate");
    assert.equal(await page.locator("img[src=x], b").count(), 0);
    await card.getByRole("button", { name: "Approve" }).click();
    const answer = await waiting;
    assert.equal(answer.choices[0].message.tool_calls[0].function.name, "send_email");
    await page.getByText("Approved: ").waitFor();
    await page.getByRole("row", { name: /send_email used the-approver/ }).waitFor();
    await close(page);
  });

  test("rejected, the client is told the reason; a second browser is told that it is decided", async () => {
    const [one, other] = [await signedIn("approver"), await signedIn("operator")];
    for (const page of [one, other]) await go(page, "Approvals");
    const waiting = ask("bob@example.com");
    const card = (page) => page.getByRole("region", { name: "Call of send_email" });
    await card(one).getByText("bob@example.com").waitFor();
    await card(other).getByText("bob@example.com").waitFor();
    // The second browser does not look again before it decides.
    await other.route("**/admin/v1/approvals?*", (route) => route.abort());
    await card(one).getByLabel("Reason").fill("wrong address");
    await card(one).getByRole("button", { name: "Reject" }).click();
    const answer = await waiting;
    assert.match(answer.choices[0].message.content, /rejected this call .*: wrong address/);
    await other.unroute("**/admin/v1/approvals?*");
    await close(one);
    other.troubles = [];
    await other.reload();
    await other.getByRole("row", { name: /send_email rejected the-approver wrong address/ }).waitFor();
    await close(other);
  });

  test("a viewer sees that a call waits, and neither its arguments nor buttons", async () => {
    const waiting = ask("eve@example.com");
    const page = await signedIn("viewer");
    await go(page, "Approvals");
    const card = page.getByRole("region", { name: "Call of send_email" });
    await card.getByText("Approvers see what the call would do.").waitFor();
    assert.equal(await page.getByText("eve@example.com").count(), 0);
    assert.equal(await card.getByRole("button").count(), 0);
    await close(page);
    const approver = await signedIn("approver");
    await go(approver, "Approvals");
    await approver.getByRole("region", { name: "Call of send_email" }).getByRole("button", { name: "Reject" }).click();
    await waiting;
    await close(approver);
  });
});

describe("pictures", { skip: !PICTURES }, () => {
  for (const colorScheme of ["light", "dark"]) {
    test(`every page, ${colorScheme}`, async () => {
      for (let turn = 0; turn < 6; turn++) {
        await chat(server, [KEYS.research, KEYS.support, KEYS.nightly][turn % 3], `say The answer to question ${turn} is here.`, { model: turn % 2 ? "sandbox-echo" : "sandbox-agent" });
      }
      const tool = [{ type: "function", function: { name: "get_weather", parameters: { type: "object" } } }];
      const { id } = await chat(server, KEYS.research, 'call get_weather {"city":"Oslo"}\ncall delete_files {"path":"/"}', { tools: tool });
      for (const [run, steps] of [["weekly-report-31", 3], ["weekly-report-32", 5]]) {
        for (let step = 0; step < steps; step++) {
          const place = JSON.stringify({ city: `city ${step}` });
          await chat(server, KEYS.research, `call get_weather ${place}`, { tools: tool }, { "x-run-id": run, "x-run-tag": "report" });
        }
      }
      await chat(server, KEYS.research, 'call delete_files {"path":"/"}', { tools: tool }, { "x-run-id": "weekly-report-32" });
      const held = new AbortController();
      for (const to of ["ann@example.com", "board@example.com"]) {
        fetch(`${server.api}/chat/completions`, { method: "POST", signal: held.signal, headers: { authorization: "Bearer tg-demo-key", "content-type": "application/json" },
          body: JSON.stringify({ model: "sandbox-agent", messages: [{ role: "user", content: `call send_email {"to":"${to}","subject":"Quarterly figures","attachments":[{"name":"q3.pdf","pages":12}],"urgent":true}` }], tools: [{ type: "function", function: { name: "send_email" } }] }) }).catch(() => {});
      }
      for (const [device, viewport] of [["", { width: 1280, height: 860 }], ["-phone", { width: 390, height: 844 }]]) {
        const page = await signedIn("operator", { colorScheme, viewport, deviceScaleFactor: device ? 2 : 1 });
        const suffix = `${device}-${colorScheme}`;
        await page.locator("tbody tr").first().waitFor();
        await page.waitForTimeout(2500);
        await picture(page, `activity${suffix}`);
        for (const name of ["Approvals", "Spend", "Policies", "Ledger"]) {
          await go(page, name);
          await page.getByRole("heading", { name, level: 1 }).waitFor();
          if (name === "Spend") {
            await page.getByRole("button", { name: "30 days" }).click();
            await page.locator(".chart").waitFor();
          }
          if (name === "Policies") await page.locator("summary", { hasText: "version 2" }).first().click();
          await page.waitForTimeout(400);
          await picture(page, `${name.toLowerCase()}${suffix}`);
        }
        await go(page, "Runs");
        await page.getByText("weekly-report-32").first().waitFor();
        await picture(page, `runs${suffix}`);
        await page.getByRole("link", { name: "weekly-report-32" }).first().click();
        await page.getByRole("heading", { name: "weekly-report-32" }).waitFor();
        await page.waitForTimeout(400);
        await picture(page, `run${suffix}`);
        await page.goto(`${server.url}/#/requests/${id}`);
        await page.locator(".path").waitFor();
        await picture(page, `request${suffix}`);
        await page.getByRole("button", { name: "Sign out" }).click();
        await page.getByLabel("Operator token").waitFor();
        await picture(page, `sign-in${suffix}`);
        await close(page);
      }
    });
  }
});

async function picture(page, name) {
  if (!PICTURES) return;
  await mkdir(PICTURES, { recursive: true });
  // What fits a screen, small enough to be kept.
  await writeFile(join(PICTURES, `${name}-screen.png`), await page.screenshot());
  await writeFile(join(PICTURES, `${name}.png`), await page.screenshot({ fullPage: true }));
}
