// The list of conversations: new, search, rename, export, import, delete.
import {asMarkdown, readConversation, textWithFiles, titleOf} from './conversation.js';
import {dialog, el, icon, iconButton, replace, save, toast} from './dom.js';
import {allConversations, deleteConversation, loadConversation, restoreConversation, saveConversation} from './store.js';
import {dayName, t} from './words.js';

const kImportBytesMax = 64 << 20;

function fileName(title, ending) {
  return `${title.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-+|-+$/g, '').slice(0, 60) || 'headrace'}.${ending}`;
}

function holds(conversation, words) {
  const text = [
    titleOf(conversation),
    ...Object.values(conversation.messages).map((message) => `${textWithFiles(message)}\n${message.reasoning ?? ''}`)
  ].join('\n').toLowerCase();
  return words.every((word) => text.includes(word));
}

export class Sidebar {
  // page: openConversation(id), openNew(), openDashboard(), forget(id)
  constructor(page) {
    this.page = page;
    this.at = null;
    this.search = el('input', {
      type: 'search',
      id: 'search',
      placeholder: t('search'),
      'aria-label': t('search'),
      oninput: () => this.refresh()
    });
    this.list = el('nav', {class: 'conversations', 'aria-label': t('conversations')});
    this.picker = el('input', {
      type: 'file',
      accept: '.json,application/json',
      class: 'offscreen',
      tabindex: '-1',
      'aria-hidden': 'true',
      onchange: () => this.importFile()
    });
    this.dashboard = el('a', {class: 'side-link', href: '#/dashboard'}, icon('chart'), el('span', {}, t('dashboard')));
    this.node =
        el('aside', {class: 'sidebar', 'aria-label': t('conversations')},
           el('div', {class: 'brand'}, el('img', {src: 'page/icon.svg', alt: '', width: '26', height: '26'}),
              el('h1', {}, 'Headrace')),
           el('button', {type: 'button', class: 'side-link new', onclick: () => page.openNew()}, icon('add'),
              el('span', {}, t('newChat'))),
           this.dashboard, el('label', {class: 'search'}, icon('search', 16), this.search), this.list,
           el('div', {class: 'side-foot'}, this.picker,
              el('button', {type: 'button', class: 'small-link', onclick: () => this.picker.click()},
                 icon('upload', 15), el('span', {}, t('import'))),
              el('button', {type: 'button', class: 'small-link', onclick: () => this.exportAll()}, icon('download', 15),
                 el('span', {}, t('exportAll')))));
  }

  // `id`: of the conversation that is shown; 'dashboard': that is.
  setCurrent(id) {
    this.at = id;
    if (id === 'dashboard')
      this.dashboard.setAttribute('aria-current', 'page');
    else
      this.dashboard.removeAttribute('aria-current');
    for (const row of this.list.querySelectorAll('[data-id]')) row.classList.toggle('current', row.dataset.id === id);
  }

  async refresh() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const all = await allConversations();
    if (turn !== this.turn) return;  // another key was hit meanwhile
    const nodes = [];
    let day = null;
    for (const conversation of all) {
      const row = this.rowIfFound(conversation, words);
      if (!row) continue;
      const name = dayName(conversation.updated);
      if (name !== day) nodes.push(el('h2', {}, (day = name)));
      nodes.push(row);
    }
    if (nodes.length === 0)
      nodes.push(el('p', {class: 'faint none'}, words.length > 0 ? t('nothingFound') : t('noConversations')));
    replace(this.list, nodes);
    this.setCurrent(this.at);
  }

  // Null where nothing is to be shown. A record that is no conversation does not hide the others.
  rowIfFound(conversation, words) {
    try {
      const isFound = Object.keys(conversation.messages).length > 0 && holds(conversation, words);
      return isFound ? this.row(conversation) : null;
    } catch (error) {
      console.warn(`conversation ${conversation.id} cannot be read: ${error.message}`);
      return null;
    }
  }

  row(conversation) {
    const title = titleOf(conversation) || t('untitled');
    return el(
        'div', {class: 'row', 'data-id': conversation.id}, el('a', {href: `#/c/${conversation.id}`, title}, title),
        el('div', {class: 'row-actions'},
           iconButton('edit', `${t('rename')}: ${title}`, () => this.rename(conversation.id)),
           iconButton('download', `${t('export')}: ${title}`, () => this.exportOne(conversation.id)),
           iconButton('trash', `${t('remove')}: ${title}`, () => this.remove(conversation.id))));
  }

  async rename(id) {
    const conversation = await this.page.loaded(id);
    const input = el('input', {type: 'text', value: titleOf(conversation), 'aria-label': t('title'), maxlength: '200'});
    const title =
        await dialog(t('rename'), input, {label: t('save'), cancel: t('cancel'), submit: () => input.value.trim()});
    if (title === null) return;
    conversation.title = title;
    await saveConversation(conversation);
    this.page.saved(conversation);
  }

  async remove(id) {
    const conversation = await this.page.loaded(id);
    await deleteConversation(id);
    this.page.forget(id);
    this.refresh();
    toast(t('removed'), {
      label: t('undo'),
      run: async () => {
        await restoreConversation(conversation);
        this.refresh();
      }
    });
  }

  async exportOne(id) {
    const conversation = await loadConversation(id);
    save(fileName(titleOf(conversation), 'md'), 'text/markdown', asMarkdown(conversation));
  }
  async exportAll() {
    const conversations = await allConversations();
    save(
        `headrace-${new Date().toISOString().slice(0, 10)}.json`, 'application/json',
        JSON.stringify({headrace: 1, conversations}, null, 1));
    toast(t('exported', {n: conversations.length}));
  }

  async importFile() {
    const [file] = this.picker.files;
    this.picker.value = '';
    if (!file) return;
    try {
      if (file.size > kImportBytesMax) throw new Error(t('fileTooLarge', {name: file.name}));
      const {conversations} = JSON.parse(await file.text());
      if (!Array.isArray(conversations)) throw new Error('conversations: a list is expected');
      const read = conversations.map(readConversation);  // all of them, before one is kept
      for (const conversation of read) await restoreConversation(conversation);
      this.refresh();
      toast(t('imported', {n: read.length}));
    } catch (error) {
      toast(t('notImported', {why: error.message}));
    }
  }
}
