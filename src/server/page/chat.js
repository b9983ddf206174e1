// The conversation that is shown: its messages, the answers under way, and what people do with both.
import {runAnswer} from './answer.js';
import {Composer} from './composer.js';
import {addMessage, childrenOf, newConversation, pathOf, removeMessage} from './conversation.js';
import {eachFrame, el, iconButton, replace, toast} from './dom.js';
import {MessageView} from './message.js';
import {saveConversation} from './store.js';
import {t} from './words.js';

const kNearBottom = 80;  // pixels: who is as near goes with the text as it grows
const kSaveEvery = 400;  // ms: what a reload in the middle of an answer may lose

const kSuggestions = ['suggestExplain', 'suggestCode', 'suggestWrite', 'suggestTable'];

export class Chat {
  // page: defaultSettings(), saved(conversation), settingsOf(conversation), opened(conversation)
  constructor(page) {
    this.page = page;
    this.conversation = null;
    this.views = new Map();    // of the messages that are shown, by id
    this.answers = new Map();  // under way, by their conversation: {controller, message}
    this.composer = new Composer(
        {send: (text, files) => this.send(text, files), stop: () => this.stop(), editLast: () => this.editLast()});
    this.list = el('div', {class: 'messages'});
    this.scroller =
        el('div', {
          class: 'scroller',
          tabindex: '0',
          role: 'region',
          'aria-label': t('conversation'),
          onscroll: () => this.scrolled()
        },
           this.list);
    this.toEnd = iconButton('down', t('toEnd'), () => this.scrollToEnd(), {class: 'to-end', hidden: true});
    this.live = el('div', {class: 'offscreen', role: 'status'});
    this.node = el(
        'div', {class: 'chat'}, this.scroller,
        el('div', {class: 'dock'}, this.toEnd, this.composer.node, el('p', {class: 'note'}, t('mistakes'))), this.live);
    this.follows = true;
    this.scrolledTo = 0;
    new ResizeObserver(() => this.follows && this.scrollToEnd()).observe(this.list);
  }

  // --- What is shown ---

  open(conversation) {
    this.conversation = conversation ?? newConversation(this.page.defaultSettings());
    this.views.clear();
    this.follows = true;
    this.scrolledTo = 0;
    this.show();
    this.page.opened(this.conversation);
  }

  // Views stay as they are where their message does.
  show() {
    const path = pathOf(this.conversation);
    const views = new Map();
    for (const message of path)
      views.set(message.id, this.views.get(message.id) ?? new MessageView(this, this.conversation, message));
    this.views = views;
    const running = this.answers.get(this.conversation.id);
    for (const [id, view] of views) {
      const runs = running?.message.id === id;
      if (runs || view.running)
        view.setRunning(runs);
      else
        view.updateFoot();
    }
    const nodes = path.length > 0 ? [...views.values()].map((view) => view.node) : [this.greeting()];
    // What is taken out and put in again is laid out anew, which takes long where it is long.
    const shown = this.list.childNodes;
    if (nodes.length !== shown.length || nodes.some((node, i) => node !== shown[i])) replace(this.list, nodes);
    this.node.classList.toggle('empty', path.length === 0);
    this.composer.setRunning(Boolean(running));
    this.scrolled();
  }

  greeting() {
    return el(
        'div', {class: 'greeting'}, el('img', {src: 'page/icon.svg', alt: '', width: '44', height: '44'}),
        el('h2', {}, t('greeting')),
        el('div', {class: 'suggestions'},
           kSuggestions.map(
               (key) =>
                   el('button', {
                     type: 'button',
                     onclick: () => {
                       this.composer.text = t(key);
                       this.composer.area.focus();
                     }
                   },
                      t(key)))));
  }

  scrolled() {
    const {scrollTop, scrollHeight, clientHeight} = this.scroller;
    const away = scrollHeight - scrollTop - clientHeight;
    // Who scrolls up leaves the end; a text that grows below it does not.
    if (away < kNearBottom)
      this.follows = true;
    else if (scrollTop < this.scrolledTo)
      this.follows = false;
    this.scrolledTo = scrollTop;
    this.toEnd.hidden = away < 2 * kNearBottom;
  }
  scrollToEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  // --- What people do ---

  lastMessage() {
    return pathOf(this.conversation).at(-1);
  }

  send(text, files = []) {
    const message = addMessage(
        this.conversation, this.lastMessage()?.id ?? '', {role: 'user', text, ...(files.length > 0 ? {files} : {})});
    this.follows = true;
    this.answer(message.id);
  }

  stop() {
    this.answers.get(this.conversation.id)?.controller.abort();
  }

  regenerate(message) {
    if (this.isBusy()) return;
    if (message.error && !message.text) removeMessage(this.conversation, message.id);
    this.answer(message.parent);
  }

  goOn(message) {
    if (!this.isBusy()) this.run(message, true);
  }

  saveEdit(message, text) {
    if (this.isBusy()) return;
    const {role, parent, files} = message;
    const edited = addMessage(this.conversation, parent, {role, text, ...(files ? {files} : {})});
    if (role === 'user') return this.answer(edited.id);
    this.save(this.conversation);
    this.show();
  }

  editLast() {
    const last = pathOf(this.conversation).filter((message) => message.role === 'user').at(-1);
    if (!last || this.isBusy()) return false;
    this.views.get(last.id).edit();
    return true;
  }

  showBranch(message) {
    this.conversation.chosen[message.parent] = message.id;
    this.follows = false;
    this.show();
    this.views.get(message.id).node.scrollIntoView({block: 'nearest'});
    this.save(this.conversation);
  }

  remove(message) {
    if (this.isBusy()) return;
    const before = structuredClone({messages: this.conversation.messages, chosen: this.conversation.chosen});
    const {conversation} = this;
    removeMessage(conversation, message.id);
    const shown = () => {
      this.save(conversation);
      if (this.conversation !== conversation) return;
      this.views.clear();
      this.show();
    };
    shown();
    toast(t('removed'), {label: t('undo'), run: () => (Object.assign(conversation, before), shown())});
  }

  isBusy() {
    const busy = this.answers.has(this.conversation.id);
    if (busy) toast(t('stopFirst'));
    return busy;
  }

  // Calls of tools: people are the tools. Their results follow the message, one behind the other.
  resultsOf(message) {
    const results = [];
    for (let at = message; (at = childrenOf(this.conversation, at.id).find((child) => child.role === 'tool'));)
      results.push(at);
    return results;
  }
  isAnswered(message, call) {
    return this.resultsOf(message).some((result) => result.call === call.id);
  }
  answerCall(message, place, text) {
    const call = message.calls[place];
    const results = this.resultsOf(message);
    const result = addMessage(
        this.conversation, results.at(-1)?.id ?? message.id, {role: 'tool', call: call.id, name: call.name, text});
    this.views.delete(message.id);
    const left = message.calls.filter((other) => !this.isAnswered(message, other));
    if (left.length === 0) return this.answer(result.id);
    this.save(this.conversation);
    this.show();
  }

  // --- Answers ---

  answer(parent) {
    const settings = this.page.settingsOf(this.conversation);
    return this.run(addMessage(this.conversation, parent, {role: 'assistant', model: settings.model}), false);
  }

  async run(message, goOn) {
    const {conversation} = this;
    const controller = new AbortController();
    this.answers.set(conversation.id, {controller, message});
    this.save(conversation);
    this.show();
    this.live.textContent = t('answering');
    const draw = eachFrame(() => this.conversation === conversation && this.views.get(message.id)?.update());
    let saved = performance.now();
    await runAnswer(conversation, message, {
      signal: controller.signal,
      goOn,
      changed: () => {
        draw();
        // Probabilities are many small lists, which take long to copy.
        if (performance.now() - saved < kSaveEvery + (message.tokens?.length ?? 0)) return;
        saved = performance.now();
        saveConversation(conversation).catch(() => {});
      }
    });
    this.answers.delete(conversation.id);
    this.save(conversation);
    if (this.conversation !== conversation) return;
    this.show();
    this.views.get(message.id)?.update();
    this.live.textContent = message.error ? '' : `${t('answered')} ${message.text.slice(0, 500)}`;
  }

  async save(conversation) {
    try {
      await saveConversation(conversation);
    } catch (error) {
      toast(t('notSaved', {why: error?.message ?? ''}));
    }
    this.page.saved(conversation);
  }
}
