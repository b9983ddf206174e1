// Conversations in the browser's IndexedDB. Where that is forbidden they live as long as the page.
import {readTime} from './conversation.js';

const kName = 'headrace';
const kStore = 'conversations';
let database = null;
const unsaved = new Map();    // without a database
const deleted = new Set();    // whose answers may still be coming
const known = new WeakMap();  // messages that each conversation has had, as this page holds it

function opened() {
  database ??= new Promise((resolve) => {
    try {
      const opening = indexedDB.open(kName, 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore(kStore, {keyPath: 'id'});
      opening.onsuccess = () => resolve(opening.result);
      opening.onerror = opening.onblocked = () => resolve(null);
    } catch {
      resolve(null);
    }
  });
  return database;
}

async function transact(mode, run) {
  const db = await opened();
  if (!db) return null;
  return new Promise((resolve, reject) => {
    const transaction = db.transaction(kStore, mode);
    const asked = run(transaction.objectStore(kStore));
    transaction.oncomplete = () => resolve(asked?.result ?? null);
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
}

// What another page has added meanwhile is kept, and is in `conversation` from then on.
function takeOthers(conversation, stored) {
  const own = known.get(conversation) ?? new Set();
  for (const [id, message] of Object.entries(stored?.messages ?? {}))
    if (!own.has(id) && conversation.messages) conversation.messages[id] ??= message;
  note(conversation);
}
function note(conversation) {
  const own = known.get(conversation) ?? new Set();
  for (const id of Object.keys(conversation.messages ?? {})) own.add(id);
  known.set(conversation, own);
}

// Not of one that was deleted.
export async function saveConversation(conversation) {
  if (deleted.has(conversation.id)) return;
  unsaved.set(conversation.id, conversation);
  await transact('readwrite', (store) => {
    const asked = store.get(conversation.id);
    asked.onsuccess = () => {
      takeOthers(conversation, asked.result);
      store.put(conversation);
    };
  });
}

export async function restoreConversation(conversation) {
  deleted.delete(conversation.id);
  await saveConversation(conversation);
}

export async function loadConversation(id) {
  const found = (await transact('readonly', (store) => store.get(id))) ?? unsaved.get(id) ?? null;
  if (found) note(found);
  return found;
}

export async function deleteConversation(id) {
  deleted.add(id);
  unsaved.delete(id);
  await transact('readwrite', (store) => store.delete(id));
}

// Newest first, each at a time that a Date can hold.
export async function allConversations() {
  const found = (await transact('readonly', (store) => store.getAll())) ?? [...unsaved.values()];
  for (const conversation of found) conversation.updated = readTime(conversation.updated);
  return found.sort((a, b) => b.updated - a.updated);
}
