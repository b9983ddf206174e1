// A conversation as plain data: a tree of messages, of which one path is shown. What is edited or
// answered again becomes another branch; nothing is lost.

const newId = () => crypto.getRandomValues(new Uint32Array(3)).reduce((id, n) => id + n.toString(36), '');

export function newConversation(settings) {
  const now = Date.now();
  return {
    id: newId(),
    title: '',
    created: now,
    updated: now,
    settings: structuredClone(settings),
    messages: {},
    chosen: {}
  };
}

// Behind `parent` ('': the first message), and shown from now on.
export function addMessage(conversation, parent, fields) {
  const message = {id: newId(), parent, text: '', created: Date.now(), ...fields};
  conversation.messages[message.id] = message;
  conversation.chosen[parent] = message.id;
  conversation.updated = Date.now();
  return message;
}

export function childrenOf(conversation, parent) {
  return Object.values(conversation.messages).filter((message) => message.parent === parent);
}

export function siblingsOf(conversation, message) {
  return childrenOf(conversation, message.parent);
}

// The messages that are shown, first to last.
export function pathOf(conversation) {
  const byParent = new Map();
  for (const message of Object.values(conversation.messages)) byParent.set(message.parent, message);
  const path = [];
  const seen = new Set();
  for (let parent = ''; !seen.has(parent);) {
    seen.add(parent);
    const next = conversation.messages[conversation.chosen[parent]] ?? byParent.get(parent);
    if (!next) break;
    path.push(next);
    parent = next.id;
  }
  return path;
}

export function pathTo(conversation, id) {
  const path = new Set();  // a message that is its own ancestor ends the path
  for (let message = conversation.messages[id]; message && !path.has(message);
       message = conversation.messages[message.parent]) {
    path.add(message);
  }
  return [...path].reverse();
}

export function removeMessage(conversation, id) {
  const {parent} = conversation.messages[id];
  const gone = [id];
  for (let i = 0; i < gone.length; ++i) {
    gone.push(...childrenOf(conversation, gone[i]).map((child) => child.id));
    delete conversation.messages[gone[i]];
    delete conversation.chosen[gone[i]];
  }
  if (conversation.chosen[parent] === id) delete conversation.chosen[parent];
}

// A fence that the text does not hold itself.
function fenceFor(text) {
  const runs = text.match(/`{3,}/g) ?? [];
  return '`'.repeat(Math.max(3, ...runs.map((run) => run.length + 1)));
}

// What the model reads of a message of a person: files first, each under its name.
export function textWithFiles(message) {
  const files = (message.files ?? []).map((file) => {
    const fence = fenceFor(file.text);
    return `${file.name}:\n${fence}\n${file.text}\n${fence}\n\n`;
  });
  return files.join('') + message.text;
}

function wireMessage(message) {
  if (message.role === 'user') return {role: 'user', content: textWithFiles(message)};
  if (message.role === 'tool') return {role: 'tool', tool_call_id: message.call, content: message.text};
  const wire = {role: 'assistant', content: message.text};
  if (message.reasoning) wire.reasoning_content = message.reasoning;
  if (message.calls?.length) {
    wire.tool_calls = message.calls.map(
        (call) => ({id: call.id, type: 'function', function: {name: call.name, arguments: call.arguments}}));
  }
  return wire;
}

export function wireMessages(conversation, path) {
  const system = conversation.settings.system?.trim();
  const messages = path.filter((message) => !message.error || message.text).map(wireMessage);
  return system ? [{role: 'system', content: system}, ...messages] : messages;
}

export function titleOf(conversation) {
  if (conversation.title) return conversation.title;
  const first = pathOf(conversation)[0];
  const text = (first?.text || first?.files?.[0]?.name || '').trim().split('\n')[0];
  return text.length > 60 ? `${text.slice(0, 58).trimEnd()}…` : text;
}

export function asMarkdown(conversation) {
  const parts = [`# ${titleOf(conversation)}`];
  if (conversation.settings.system) parts.push(`> ${conversation.settings.system.replaceAll('\n', '\n> ')}`);
  for (const message of pathOf(conversation)) {
    parts.push(`## ${message.role}`, message.role === 'user' ? textWithFiles(message) : message.text);
    for (const call of message.calls ?? []) parts.push(`\`${call.name}(${call.arguments})\``);
  }
  return `${parts.join('\n\n')}\n`;
}

// --- Conversations of files and of the database, which may come from anywhere ---

const kTextMax = 4 << 20;
const kTimeMax = Date.UTC(9999, 11, 31);

function expect(right, what) {
  if (!right) throw new Error(`${what} is expected`);
}
function readText(name, value = '') {
  expect(typeof value === 'string' && value.length <= kTextMax, `${name}: a text`);
  return value;
}
// Now, where `value` is no time: of what no Date can hold, no day could be told.
export function readTime(value) {
  return typeof value === 'number' && value > 0 && value <= kTimeMax ? value : Date.now();
}
function readList(name, value, each) {
  expect(Array.isArray(value), `${name}: a list`);
  return value.map(each);
}
const readTexts = (list, ...names) => (value) =>
    Object.fromEntries(names.map((name) => [name, readText(`${list}: ${name}`, value?.[name])]));

function readAlternative(value) {
  expect(
      Array.isArray(value) && typeof value[0] === 'string' && typeof value[1] === 'number',
      'tokens: a text with a probability');
  return [value[0], value[1]];
}

function readMessage(id, value, all) {
  expect(id !== '' && id !== '__proto__', 'messages: a name for each');
  expect(['user', 'assistant', 'tool'].includes(value?.role), 'role: user, assistant or tool');
  expect(value.parent === '' || Object.hasOwn(all, value.parent), 'parent: a message that is there');
  const read = {
    id,
    parent: value.parent,
    role: value.role,
    text: readText('text', value.text),
    created: readTime(value.created)
  };
  for (const name of ['reasoning', 'finish', 'model', 'error', 'call', 'name'])
    if (value[name]) read[name] = readText(name, value[name]);
  if (value.files) read.files = readList('files', value.files, readTexts('files', 'name', 'text'));
  if (value.calls) read.calls = readList('calls', value.calls, readTexts('calls', 'id', 'name', 'arguments'));
  if (value.tokens)
    read.tokens = readList(
        'tokens', value.tokens, (token) => [...readAlternative(token), readList('tokens', token[2], readAlternative)]);
  if (Number(value.thinkingMs)) read.thinkingMs = Number(value.thinkingMs);
  if (value.stats)
    read.stats = Object.fromEntries(Object.entries(value.stats).filter(([, number]) => typeof number === 'number'));
  return read;
}

// Each message hangs, by its parents, from ''.
function expectTree(messages) {
  const reached = new Set(['']);
  for (const id of Object.keys(messages)) {
    const way = new Set();
    for (let at = id; !reached.has(at); at = messages[at].parent) {
      expect(!way.has(at), 'parent: a message that is no descendant');
      way.add(at);
    }
    for (const each of way) reached.add(each);
  }
}

const kSettings = {
  model: 'string',
  system: 'string',
  format: 'string',
  schema: 'string',
  tools: 'string',
  stop: 'string',
  reasoning_effort: 'string',
  probabilities: 'boolean',
  temperature: 'number',
  top_p: 'number',
  top_k: 'number',
  min_p: 'number',
  max_tokens: 'number',
  seed: 'number',
  repetition_penalty: 'number',
  presence_penalty: 'number',
  frequency_penalty: 'number'
};

// Throws where `value` is no conversation; keeps what is known of it, and nothing else.
export function readConversation(value) {
  const {messages, chosen = {}, settings = {}} = value ?? {};
  expect(typeof messages === 'object' && messages !== null, 'messages: an object');
  const read = {
    id: newId(),
    title: readText('title', value.title),
    created: readTime(value.created),
    updated: readTime(value.updated),
    settings: Object.fromEntries(Object.entries(settings).filter(([name, each]) => typeof each === kSettings[name])),
    messages: {},
    chosen: {}
  };
  for (const [id, message] of Object.entries(messages)) read.messages[id] = readMessage(id, message, messages);
  expectTree(read.messages);
  for (const [parent, child] of Object.entries(chosen))
    if (Object.hasOwn(messages, child) && messages[child].parent === parent) read.chosen[parent] = child;
  return read;
}
