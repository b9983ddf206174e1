// Conversations in the browser's IndexedDB. Where that is forbidden they live as long as the page.
import {readTime} from './conversation.js';

const kName = 'headrace';
const kStore = 'conversations';
let database = null;
const unsaved = new Map();  // without a database

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

export async function saveConversation(conversation) {
  unsaved.set(conversation.id, conversation);
  await transact('readwrite', (store) => store.put(conversation));
}

export async function loadConversation(id) {
  return (await transact('readonly', (store) => store.get(id))) ?? unsaved.get(id) ?? null;
}

export async function deleteConversation(id) {
  unsaved.delete(id);
  await transact('readwrite', (store) => store.delete(id));
}

// Newest first, each at a time that a Date can hold.
export async function allConversations() {
  const found = (await transact('readonly', (store) => store.getAll())) ?? [...unsaved.values()];
  for (const conversation of found) conversation.updated = readTime(conversation.updated);
  return found.sort((a, b) => b.updated - a.updated);
}
