// When to fetch again: as soon as the server says that something changed, and now and then.

/** While the server tells of changes; what goes by without an event (time left) is drawn anew. */
const SELDOM_MS = 10_000;
/** The server has refused to tell: enough listen, or the session is over. */
const AGAIN_MS = 30_000;

/**
 * `kind`: "activity" or "approvals". The answer is a function that resolves when it is time to
 * fetch again: by an event, or after `ms` where there are no events. Only a page that is seen
 * listens, since a browser opens few connections to one place.
 */
export function changes(kind, signal) {
  let source = null;
  let due = false;
  let wake = () => {};
  let timer;

  const now = () => {
    due = true;
    wake();
  };
  const leave = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const listen = () => {
    leave();
    if (signal.aborted || document.hidden) return;
    source = new EventSource("/admin/v1/events");
    source.addEventListener(kind, now);
    // What happened before it was open has to be fetched as well.
    source.addEventListener("open", now);
    source.addEventListener("error", () => {
      if (source?.readyState === EventSource.CLOSED) timer = setTimeout(listen, AGAIN_MS);
      now();
    });
  };
  document.addEventListener("visibilitychange", listen, { signal });
  signal.addEventListener("abort", leave, { once: true });
  listen();

  return async (ms) => {
    if (!due) {
      const told = new Promise((done) => { wake = done; });
      const open = source?.readyState === EventSource.OPEN;
      await Promise.race([told, pause(open ? SELDOM_MS : ms, signal)]);
    }
    due = false;
    if (signal.aborted) throw new DOMException("left", "AbortError");
  };
}

/** Ends early, with an error, when the page is left. */
export function pause(ms, signal) {
  return new Promise((done, left) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      left(new DOMException("left", "AbortError"));
    }, { once: true });
  });
}
