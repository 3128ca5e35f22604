// How times, amounts and codes are told.

const DAY = 86_400_000;
const whole = new Intl.NumberFormat("en-US");
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const dayAndClock = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const hour = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

export const count = (number) => whole.format(number ?? 0);
export const shortTime = (ms) => (Date.now() - ms < DAY / 2 && new Date(ms).getDate() === new Date().getDate() ? clock : dayAndClock).format(ms);
export const fullTime = (ms) => full.format(ms);
export const hourName = (ms) => hour.format(ms);
/** A bucket of a day begins at midnight UTC: told as that day, wherever the reader is. */
export const dayName = (ms) => new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", timeZone: "UTC" }).format(ms);
export const dayHere = (ms) => day.format(ms);

/** Exact decimal text as dollars that one can read: small amounts keep their leading digits. */
export function dollars(text) {
  const amount = Number(text);
  if (amount === 0) return "$0.00";
  if (amount >= 1) return "$" + amount.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  if (amount >= 0.01) return "$" + amount.toFixed(4).replace(/0{1,2}$/, "");
  return "$" + amount.toPrecision(2).replace(/^(\d)(?:\.(\d))?e-(\d+)$/, (_, first, second, zeros) => "0." + "0".repeat(zeros - 1) + first + (second ?? ""));
}

export const nanoDollars = (nanos) => dollars(nanos / 1e9);

export function duration(ms) {
  if (ms < 1000) return `${ms} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  return span(ms);
}

/** "3 h 20 min": the two units that matter. */
export function span(ms) {
  const units = [[DAY, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]];
  const first = units.findIndex(([size]) => ms >= size);
  if (first < 0) return "0 s";
  const [size, name] = units[first];
  const head = `${Math.floor(ms / size)} ${name}`;
  const next = units[first + 1];
  const more = next && Math.floor((ms % size) / next[0]);
  return more ? `${head} ${more} ${next[1]}` : head;
}

export function amount(unit, value) {
  return unit === "usd" ? dollars(value) : count(value);
}

const LIMITS = { minute: "per minute", day: "per day", month: "per month", total: "in total" };
const UNITS = { usd: "Cost", tokens: "Tokens", requests: "Requests" };
export const limitName = (limit) => `${UNITS[limit.unit] ?? limit.unit} ${LIMITS[limit.window] ?? limit.window}`;

/** Kinds of records, as people would say it. */
export const KIND = {
  started: "Tallygate started",
  request_started: "Admitted",
  attempt_failed: "Attempt failed",
  request_settled: "Settled",
  request_refused: "Refused",
  call_judged: "Tool call",
  escalation: "Escalation",
  run_reported: "Outcome of a run",
  approval_opened: "Waits for a person",
  approval_decided: "Decided",
  approval_used: "Delivered after approval",
  refusals_summed: "Refusals summed up",
  configuration_reloaded: "Configuration reloaded",
  configuration_refused: "Configuration refused",
  policy_published: "Policy published",
  policy_archived: "Policy archived",
  lease_recovered: "Slice of an earlier process counts as spent",
};

const OUTCOME = {
  completed: ["good", "completed"],
  client_gone: ["warn", "client left"],
  upstream_failed: ["bad", "provider failed"],
  upstream_error: ["bad", "provider error"],
  cut: ["warn", "cut at a limit"],
};

/** Tone and words of what came of a record. */
export function outcome(record) {
  switch (record.kind) {
    case "request_settled":
      if (record.outcome === "completed" && record.status >= 400) return ["bad", "calls blocked"];
      return OUTCOME[record.outcome] ?? ["plain", record.outcome];
    case "request_refused":
    case "refusals_summed":
      return ["bad", record.code];
    case "attempt_failed":
      return ["warn", record.status ?? record.failure.replaceAll("_", " ")];
    case "run_reported":
      return [{ success: "good", failure: "bad" }[record.outcome] ?? "warn", record.outcome];
    case "escalation":
      return [{ helped: "good", failed: "bad" }[record.outcome] ?? "warn", record.outcome.replaceAll("_", " ")];
    case "configuration_refused":
      return ["bad", "refused"];
    case "configuration_reloaded":
      return ["good", "in force"];
    case "call_judged":
      return judged(record);
    case "approval_opened":
      return ["warn", "pending"];
    case "approval_decided":
    case "approval_used":
      return [{ approved: "good", used: "good", rejected: "bad" }[record.status] ?? "warn", record.status];
    case "request_started":
      return ["plain", "open"];
    default:
      return ["plain", KIND[record.kind] ?? record.kind];
  }
}

function judged(record) {
  if (record.blocked) return ["bad", record.blocked];
  const loudest = (record.results ?? []).find((result) => result.outcome !== "passed");
  if (loudest) return ["warn", `${loudest.code} (${loudest.outcome})`];
  return record.delivered ? ["good", "passed"] : ["warn", "withheld"];
}

/** The layers a proposed call goes through, in order. */
export const LAYERS = [
  ["malformed_output", "Whole"],
  ["unknown_tool", "Offered"],
  ["tool_not_allowlisted", "Allowed"],
  ["cross_tenant_denied", "Tenant"],
  ["schema_invalid", "Schema"],
  ["argument_denied", "Values"],
  ["sequence_violation", "Order"],
  ["loop_detected", "Loops"],
  ["needs_human_approval", "Approval"],
];

/** The guards of a request, in the order in which they are asked, with the codes they answer with. */
export const GUARDS = [
  ["Key", ["invalid_api_key"]],
  ["Endpoint", ["endpoint_not_allowed"]],
  ["Policy", ["policy_unavailable"]],
  ["Body", ["invalid_request", "input_too_large"]],
  ["Input", ["context_length_exceeded", "input_unsupported"]],
  ["Model", ["model_denied", "model_not_found"]],
  ["Tools", ["tool_not_allowlisted", "hosted_tool_denied"]],
  ["Run", ["max_steps_exceeded", "parallel_units_exceeded", "run_deadline_exceeded", "run_tool_calls_exceeded", "circuit_open", "run_not_found"]],
  ["Provider", ["provider_unavailable"]],
  ["Price", ["price_unknown"]],
  ["References", ["response_not_found"]],
  ["Limits", ["rate_limit_exceeded", "insufficient_quota", "guard_unavailable"]],
];
