// The page: what is where, which conversation is shown, and the keys of the keyboard.
import {json, onKeyNeeded, request, setApiKey} from './api.js';
import {Chat} from './chat.js';
import {titleOf} from './conversation.js';
import {Dashboard} from './dashboard.js';
import {dialog, el, iconButton, memory, replace} from './dom.js';
import {problemOf, setTheme, Settings} from './settings.js';
import {Sidebar} from './sidebar.js';
import {loadConversation, saveConversation} from './store.js';
import {language, t} from './words.js';

const kRetryMs = 1000;
const phone = matchMedia('(max-width: 800px)');

class Page {
  constructor() {
    this.chat = new Chat(this);
    this.sidebar = new Sidebar(this);
    this.settings = new Settings({
      changed: (settings) => this.settingsChanged(settings),
      close: () => this.showSettings(false),
      keyChanged: () => this.loadModels()
    });
    this.dashboard = new Dashboard();
    this.models = el(
        'select',
        {id: 'model', class: 'models', 'aria-label': t('model'), onchange: () => this.chooseModel(this.models.value)});
    this.title = el('h2', {class: 'title'});
    this.banner = el('p', {class: 'banner', role: 'status', hidden: true});
    this.settingsButton = iconButton(
        'panel', t('settings'), () => this.showSettings(), {'aria-expanded': 'false', class: 'settings-button'});
    this.main = el('main', {}, this.chat.node);
    this.scrim = el('div', {class: 'scrim', onclick: () => this.closeDrawers()});
    document.getElementById('app').append(
        this.sidebar.node,
        el('div', {class: 'center'},
           el('header', {}, iconButton('menu', t('conversations'), () => this.showSidebar(), {class: 'menu-button'}),
              this.title, this.models,
              iconButton('help', t('shortcuts'), () => this.showHelp(), {class: 'help-button'}), this.themeButton(),
              this.settingsButton),
           this.banner, this.main),
        this.settings.node, this.scrim);
  }

  async start() {
    document.documentElement.lang = language;
    onKeyNeeded((wrong) => this.askForKey(wrong));
    addEventListener('hashchange', () => this.route());
    addEventListener('keydown', (event) => this.key(event));
    addEventListener('pagehide', () => this.chat.answers.size > 0 && saveConversation(this.chat.conversation));
    document.body.classList.toggle('with-settings', !phone.matches && memory.get('settings', false));
    this.settingsButton.setAttribute('aria-expanded', String(document.body.classList.contains('with-settings')));
    await this.route();
    this.sidebar.refresh();
    await this.loadModels();
  }

  themeButton() {
    return iconButton('moon', t('theme'), () => {
      const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === 'dark' :
                                                            matchMedia('(prefers-color-scheme: dark)').matches;
      setTheme(dark ? 'light' : 'dark');
      this.settings.show(this.settings.settings);
    }, {class: 'theme-button'});
  }

  // --- What is shown: #/c/ID, #/dashboard, or a new conversation ---

  async route() {
    const [, what, id] = location.hash.split('/');
    this.closeDrawers();
    const isDashboard = what === 'dashboard';
    if (isDashboard)
      this.dashboard.start();
    else
      this.dashboard.stop();
    replace(this.main, isDashboard ? this.dashboard.node : this.chat.node);
    document.body.classList.toggle('at-dashboard', isDashboard);
    if (isDashboard) {
      if (!this.chat.conversation) this.chat.open(null);
      this.title.textContent = t('dashboard');
      document.title = `${t('dashboard')} – Headrace`;
      this.sidebar.setCurrent('dashboard');
      return;
    }
    if (this.chat.conversation && what === 'c' && this.chat.conversation.id === id)
      return this.opened(this.chat.conversation);
    this.chat.open(what === 'c' ? await this.loaded(id) : null);
    if (!phone.matches) this.chat.composer.area.focus();
  }

  // Of a conversation whose answer is under way there is one object, here.
  async loaded(id) {
    if (this.chat.conversation?.id === id) return this.chat.conversation;
    return this.live?.get(id) ?? loadConversation(id);
  }

  opened(conversation) {
    this.settings.show(conversation.settings);
    this.told(conversation);
    this.showModel();
  }
  told(conversation) {
    const title = titleOf(conversation);
    this.title.textContent = title;
    document.title = title ? `${title} – Headrace` : 'Headrace';
    this.sidebar.setCurrent(conversation.id);
    this.showModes();
  }

  saved(conversation) {
    this.live ??= new Map();
    if (this.chat.answers.has(conversation.id))
      this.live.set(conversation.id, conversation);
    else
      this.live.delete(conversation.id);
    if (this.chat.conversation === conversation && !document.body.classList.contains('at-dashboard')) {
      if (!location.hash.endsWith(conversation.id)) history.replaceState(null, '', `#/c/${conversation.id}`);
      this.told(conversation);
    }
    this.sidebar.refresh();
  }

  openNew() {
    if (location.hash)
      location.hash = '';
    else
      this.chat.open(null);
    this.closeDrawers();
    this.chat.composer.area.focus();
  }
  forget(id) {
    this.chat.answers.get(id)?.controller.abort();
    if (this.chat.conversation?.id === id) this.openNew();
  }

  // --- Settings ---

  // Of a new conversation: those of the last one, but for what it was about.
  defaultSettings() {
    return {model: this.models.value || memory.get('model', ''), ...memory.get('defaults', {})};
  }
  settingsOf(conversation) {
    return conversation.settings;
  }
  settingsChanged(settings) {
    const {system, format, schema, tools, model, ...kept} = settings;
    memory.set('defaults', {...kept, ...(system ? {system} : {})});
    this.showModes();
    if (Object.keys(this.chat.conversation.messages).length > 0)
      saveConversation(this.chat.conversation).catch(() => {});
  }

  showModes() {
    const {settings} = this.chat.conversation;
    const modes = [];
    if (settings.system?.trim()) modes.push(t('systemPrompt'));
    if (settings.format === 'json') modes.push(t('formatJson'));
    if (settings.format === 'schema') modes.push(t('formatSchema'));
    if (settings.tools?.trim()) modes.push(t('tools'));
    if (settings.probabilities) modes.push(t('probabilities'));
    if (problemOf('tools', settings.tools ?? '') ||
        (settings.format === 'schema' && problemOf('schema', settings.schema ?? '')))
      modes.push(`⚠ ${t('settings')}`);
    this.chat.composer.setModes(modes);
  }

  showSettings(on = !document.body.classList.contains('with-settings')) {
    document.body.classList.toggle('with-settings', on);
    this.settingsButton.setAttribute('aria-expanded', String(on));
    if (!phone.matches) memory.set('settings', on);
    if (on)
      this.settings.node.querySelector('textarea, input').focus();
    else
      this.settingsButton.focus();
  }
  showSidebar() {
    document.body.classList.toggle('with-sidebar', phone.matches);
    this.sidebar.search.focus();
  }
  closeDrawers() {
    document.body.classList.remove('with-sidebar');
    if (!phone.matches) return;
    document.body.classList.remove('with-settings');
    this.settingsButton.setAttribute('aria-expanded', 'false');
  }

  // --- Models ---

  // Again and again while the server loads, or cannot be reached.
  async loadModels() {
    clearTimeout(this.retry);
    try {
      await request('health');
      const {data} = await json('v1/models');
      this.banner.hidden = true;
      replace(this.models, data.map((card) => el('option', {value: card.id}, card.id)));
      this.models.disabled = data.length < 2;
      this.showModel();
    } catch (error) {
      this.banner.hidden = false;
      this.banner.textContent = error.status === 503 ? t('loadingModel') :
          error.status === 401                       ? t('keyNeeded') :
                                                       t('noServer', {why: error.message});
      if (error.status !== 401) this.retry = setTimeout(() => this.loadModels(), kRetryMs);
    }
  }
  showModel() {
    const {settings} = this.chat.conversation;
    const names = [...this.models.options].map((option) => option.value);
    if (names.length === 0) return;
    if (!names.includes(settings.model))
      settings.model = names.includes(memory.get('model')) ? memory.get('model') : names[0];
    this.models.value = settings.model;
  }
  chooseModel(name) {
    memory.set('model', name);
    this.settings.set('model', name);
  }

  async askForKey(wrong) {
    const input =
        el('input', {type: 'password', autocomplete: 'current-password', 'aria-label': t('apiKey'), required: true});
    const remember = el('input', {type: 'checkbox'});
    const body =
        el('div', {class: 'ask-key'}, el('p', {}, wrong ? t('keyWrong') : t('keyAsked')), input,
           el('label', {class: 'check'}, remember, el('span', {}, t('rememberKey'))));
    const key =
        await dialog(t('apiKey'), body, {label: t('go'), cancel: t('cancel'), submit: () => input.value.trim()});
    if (!key) return false;
    setApiKey(key, remember.checked);
    this.settings.show(this.settings.settings);
    return true;
  }

  // --- Keyboard ---

  key(event) {
    const command = event.ctrlKey || event.metaKey;
    const at = event.target;
    const writes = at.closest?.('input, textarea, select, dialog');
    if (command && event.key.toLowerCase() === 'k')
      this.take(event, () => (this.showSidebar(), this.sidebar.search.select()));
    else if (command && event.shiftKey && event.key.toLowerCase() === 'o')
      this.take(event, () => this.openNew());
    else if (command && event.key === '.')
      this.take(event, () => this.showSettings());
    else if (command && event.key === '/')
      this.take(event, () => this.showHelp());
    else if (event.key === 'Escape')
      this.escape(at);
    else if (event.key === '?' && !writes)
      this.take(event, () => this.showHelp());
    else if (event.key === '/' && !writes)
      this.take(event, () => this.chat.composer.area.focus());
  }
  take(event, run) {
    event.preventDefault();
    run();
  }
  escape(at) {
    if (at.closest?.('dialog')) return;
    if (document.body.classList.contains('with-sidebar')) return this.closeDrawers();
    if (at.closest?.('.settings')) return this.showSettings(false);
    this.chat.stop();
  }

  showHelp() {
    if (document.querySelector('dialog')) return;
    const command = /Mac|iPhone|iPad/.test(navigator.platform) ? '⌘' : 'Ctrl';
    const rows = [
      ['Enter', 'keySend'], ['Shift Enter', 'keyLine'], ['Esc', 'keyStop'], ['↑', 'keyEdit'], ['/', 'keyWrite'],
      [`${command} K`, 'keySearch'], [`${command} Shift O`, 'keyNew'], [`${command} .`, 'keySettings'], ['?', 'keyHelp']
    ];
    const body = el(
        'dl', {class: 'keys'},
        rows.flatMap(
            ([keys, key]) => [el('dt', {}, keys.split(' ').map((each) => el('kbd', {}, each))), el('dd', {}, t(key))]));
    dialog(t('shortcuts'), body, {label: t('close')});
  }
}

const page = new Page();
page.start();
