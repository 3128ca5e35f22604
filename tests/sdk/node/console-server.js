// A Tallygate of its own for the console's tests: the shipped configuration on free ports, with
// operators of each role, some keys, and a past of some days.

import { spawn, execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { cp, mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const SHIPPED = join(dirname(fileURLToPath(import.meta.url)), "../../../config");
const START_TIMEOUT_MS = 20_000;

export const TOKENS = { viewer: "tgo-console-viewer", approver: "tgo-console-approver", operator: "tgo-console-operator" };
export const KEYS = { research: "tg-console-research", support: "tg-console-support", nightly: "tg-console-nightly", spent: "tg-console-spent" };

const digest = (text) => createHash("sha256").update(text).digest("hex");

export async function startServer({ operators = true, past = false } = {}) {
  const home = await mkdtemp(join(tmpdir(), "tallygate-console-"));
  const config = join(home, "config");
  await cp(SHIPPED, config, { recursive: true });
  const [listen, admin] = [await freePort(), await freePort()];
  const file = join(config, "tallygate.toml");
  let text = await readFile(file, "utf8");
  text = text.replace(/^listen = "[^"]*"/m, `listen = "127.0.0.1:${listen}"`).replace(/^admin_listen = "[^"]*"/m, `admin_listen = "127.0.0.1:${admin}"`);
  text += "\n" + keys() + (operators ? roles() : "");
  await writeFile(file, text);
  await policies(config);
  const binary = process.env.TALLYGATE_BIN;
  const env = { ...process.env, TALLYGATE_CONFIG: file };
  if (past) await remember(binary, env, join(home, "var/tallygate.db"));
  const child = spawn(binary, ["serve"], { env, stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  child.stderr.on("data", (piece) => { log += piece; });
  const url = `http://127.0.0.1:${admin}`;
  await ready(child, url, () => log);
  return {
    url,
    api: `http://127.0.0.1:${listen}/v1`,
    file,
    policies: join(config, "policies"),
    async stop() {
      child.kill("SIGTERM");
      await new Promise((ended) => { child.exitCode === null ? child.on("exit", ended) : ended(); });
      await rm(home, { recursive: true });
    },
  };
}

/** In one step, as careful operators do. */
export async function replace(file, text) {
  await writeFile(`${file}.new`, text);
  await rename(`${file}.new`, file);
}

/** Asks for a chat completion. */
export async function chat(server, key, text, members = {}, headers = {}) {
  const response = await fetch(`${server.api}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers },
    body: JSON.stringify({ model: "sandbox-agent", messages: [{ role: "user", content: text }], ...members }),
  });
  await response.text();
  return { status: response.status, id: response.headers.get("x-request-id") };
}

function keys() {
  const tenants = { research: "acme", nightly: "acme", support: "globex", spent: "globex" };
  const own = Object.entries(KEYS).map(([name, key]) =>
    `[[keys]]\nname = "${name}"\ntenant = "${tenants[name]}"\nsha256 = "${digest(key)}"\npolicy = "${name === "spent" ? "tiny" : "agents"}"\n`);
  return own.join("\n") + `\n[tenants.acme.budget]\ndaily_cost_usd = "0.02"\nmonthly_cost_usd = "5.00"\n\n`;
}

function roles() {
  return Object.entries(TOKENS).map(([role, token]) =>
    `[[operators]]\nname = "the-${role}"\nrole = "${role}"\nsha256 = "${digest(token)}"\n`).join("\n");
}

async function policies(config) {
  const write = (name, text) => writeFile(join(config, "policies", `${name}.toml`), text);
  const agents = (version, limit, status) => `id = "agents"\nversion = ${version}\nstatus = "${status}"\n\n[models]\nallow = ["sandbox-*", "gpt-4o-mini"]\n\n[limits]\nrequests_per_minute = ${limit}\n\n[budget]\ndaily_cost_usd = "0.01"\ntotal_tokens = 2000000\n\n[tools]\nallow = ["search.web", "get_weather"]\n`;
  await write("agents-1", agents(1, 60, "archived"));
  await write("agents-2", agents(2, 120, "published"));
  await write("tiny", `id = "tiny"\nversion = 1\nstatus = "published"\n\n[budget]\ntotal_requests = 3\n`);
}

/** What was used in earlier days, as the store adds it up. */
async function remember(binary, env, database) {
  await run(binary, ["migrate"], { env });
  const script = `
import sqlite3, sys, time
store = sqlite3.connect(sys.argv[1])
now = int(time.time()) // 3600
models = [("sandbox-agent", "research", 9), ("gpt-4o-mini", "support", 6), ("sandbox-echo", "nightly", 4)]
for hour in range(now - 24 * 40, now):
    for place, (model, key, size) in enumerate(models):
        requests = (hour * (7 + 4 * place) + place * 5) % 11 * (3 if 8 <= hour % 24 <= 18 else 1)
        if requests:
            tokens = requests * 60 * size
            store.execute("INSERT INTO usage_hours VALUES (?, ?, ?, ?, ?, ?)", (hour, key, model, requests, tokens, tokens * 1150 * size))
store.commit()
`;
  await run("python3", ["-c", script, database]);
}

async function freePort() {
  const probe = createServer();
  await new Promise((bound) => probe.listen(0, "127.0.0.1", bound));
  const { port } = probe.address();
  await new Promise((closed) => probe.close(closed));
  return port;
}

async function ready(child, url, log) {
  const deadline = Date.now() + START_TIMEOUT_MS;
  while (Date.now() < deadline && child.exitCode === null) {
    try {
      if ((await fetch(`${url}/healthz`)).ok) return;
    } catch {
      await sleep(20);
    }
  }
  child.kill("SIGKILL");
  throw new Error(`the server did not start: ${log()}`);
}
