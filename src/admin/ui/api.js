// Asks /admin/v1. The session cookie goes along by itself; the header says that this page asks.

const HEADERS = { "x-tallygate-console": "1" };

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let signedOut = () => {};

/** Called when a session has ended. */
export function onSignedOut(callback) {
  signedOut = callback;
}

async function ask(method, path, { query, body, signal } = {}) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  let response;
  try {
    response = await fetch(url, { method, headers: HEADERS, body: body && JSON.stringify(body), signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "Tallygate does not answer. Is it running?");
  }
  if (!response.ok) throw await fault(response, path);
  return response;
}

async function fault(response, path) {
  let told = {};
  try {
    told = (await response.json()).error ?? {};
  } catch {
    // Not ours: a proxy between answers with something else.
  }
  const error = new ApiError(response.status, told.code ?? "unknown", told.message ?? `Status ${response.status}.`);
  if (response.status === 401 && !path.endsWith("/session")) signedOut();
  return error;
}

export async function get(path, query, signal) {
  return (await ask("GET", path, { query, signal })).json();
}

export async function post(path, body) {
  return (await ask("POST", path, { body })).json();
}

export async function remove(path) {
  await ask("DELETE", path);
}

/** Each line of JSON Lines as it comes. */
export async function lines(path, each, signal) {
  const response = await ask("GET", path, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) if (part) each(JSON.parse(part));
  }
}
