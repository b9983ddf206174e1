// The server's routes. Paths are relative, so that a proxy may serve the page under a prefix.

class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// A key lives as long as the tab, unless its owner asks for more.
const kKey = 'headrace.key';
let key = null;

function storages() {
  try {
    return [sessionStorage, localStorage];
  } catch {
    return [];
  }
}

export function apiKey() {
  if (key === null) key = storages().map((storage) => storage.getItem(kKey)).find(Boolean) ?? '';
  return key;
}

export function setApiKey(text, remember) {
  key = text;
  const [session, local] = storages();
  if (!session) return;
  for (const storage of [session, local]) storage.removeItem(kKey);
  if (text) (remember ? local : session).setItem(kKey, text);
}

export function keyIsRemembered() {
  return Boolean(storages()[1]?.getItem(kKey));
}

// Asked where a key is missing or wrong: resolves to whether there is another now.
let askForKey = async () => false;
export function onKeyNeeded(ask) {
  askForKey = ask;
}
let asking = null;

async function errorOf(response) {
  const text = await response.text();
  try {
    return new ApiError(response.status, JSON.parse(text).error.message);
  } catch {
    return new ApiError(response.status, text || `${response.status} ${response.statusText}`);
  }
}

// Resolves to a Response that is ok. A key is asked for once at a time, however many wait for it.
export async function request(path, {body, signal, quiet} = {}) {
  for (;;) {
    const used = apiKey();
    const headers = {Accept: 'application/json, text/event-stream, text/plain'};
    if (used) headers.Authorization = `Bearer ${used}`;
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    const response = await fetch(path, {
      method: body === undefined ? 'GET' : 'POST',
      headers,
      signal,
      cache: 'no-store',
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (response.ok) return response;
    if (response.status !== 401 || quiet) throw await errorOf(response);
    if (used !== apiKey()) continue;  // another call has asked meanwhile
    asking ??= askForKey(Boolean(used)).finally(() => (asking = null));
    if (!(await asking)) throw await errorOf(response);
  }
}

export const json = async (path, options) => (await request(path, options)).json();

const kDone = 'data: [DONE]';

// Lets the browser draw and take keys, where events come faster than it could otherwise.
const kBusyMs = 12;
const pause = () => (globalThis.scheduler?.yield ? scheduler.yield() : new Promise((resolve) => setTimeout(resolve)));

// Calls onEvent with the JSON of each event of a stream. Resolves to whether the server said that it was at its end:
// a proxy that gives up ends a stream as well.
export async function stream(path, body, signal, onEvent) {
  const response = await request(path, {body, signal});
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let since = performance.now();
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return rest.trim() === kDone;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith('data: ')) continue;
      if (line.trim() === kDone) return true;
      const data = line.slice(6);
      const event = JSON.parse(data);
      if (event.error) throw new ApiError(event.error.code ?? 500, event.error.message ?? String(event.error));
      onEvent(event);
      if (performance.now() - since < kBusyMs) continue;
      await pause();
      since = performance.now();
    }
  }
}
