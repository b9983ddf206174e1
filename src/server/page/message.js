// One message as it is shown. `chat` is told what people do with it: chat.regenerate(message) and so on.
import {siblingsOf} from './conversation.js';
import {copyText, el, icon, iconButton, memory, replace, toast} from './dom.js';
import {CodeView} from './highlight.js';
import {MarkdownView} from './markdown.js';
import {ProbabilityView} from './probabilities.js';
import {formatNumber, t} from './words.js';

const roleName = (role) => t({user: 'you', assistant: 'assistant', tool: 'toolResult'}[role]);

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export class MessageView {
  constructor(chat, conversation, message) {
    Object.assign(this, {chat, conversation, message, running: false, editing: false});
    this.thinking = null;
    this.markdown = new MarkdownView();
    this.probabilities = null;
    this.body = el('div', {class: 'body'});
    this.foot = el('div', {class: 'message-foot'});
    this.node =
        el('article', {class: `message ${message.role}`, 'aria-label': roleName(message.role), 'data-id': message.id},
           this.body, this.foot);
    this.update();
    this.updateFoot();
  }

  // --- What it says ---

  update() {
    if (this.editing) return;
    const {message} = this;
    if (message.role === 'user') return this.updateUser();
    if (message.role === 'tool') return this.updateTool();
    const parts =
        [this.thoughts(), this.said(), this.callCards(), this.waiting(), this.problem()].flat().filter(Boolean);
    // Only what is new is put in: a reader's selection stays where it is.
    if (parts.length !== this.body.childNodes.length || parts.some((part, i) => this.body.childNodes[i] !== part))
      replace(this.body, parts);
    if (this.running) this.updateSpeed();
  }

  updateUser() {
    const files =
        (this.message.files ?? [])
            .map(
                (file) =>
                    el('details', {class: 'file'}, el('summary', {}, icon('file', 15), el('span', {}, file.name)),
                       el('pre', {tabindex: '0'}, file.text)));
    replace(this.body, files, this.message.text && el('div', {class: 'bubble'}, this.message.text));
  }

  updateTool() {
    const code = new CodeView('json');
    code.update(pretty(this.message.text));
    replace(
        this.body,
        el('div', {class: 'call'},
           el('div', {class: 'call-head'}, icon('tool', 15), el('span', {}, t('toolResult')),
              el('code', {}, this.message.name ?? '')),
           el('pre', {tabindex: '0'}, code.node)));
  }

  thoughts() {
    const {message} = this;
    if (!message.reasoning) return null;
    if (!this.thinking) {
      const view = new MarkdownView();
      const label = el('span', {});
      this.thinking = {
        view,
        label,
        node: el('details', {class: 'thinking'}, el('summary', {}, icon('spark', 15), label), view.node)
      };
    }
    const over = !this.running || message.thinkingMs;
    const seconds = message.thinkingMs ? formatNumber(message.thinkingMs / 1000, 1) : null;
    this.thinking.label.textContent = over ? (seconds ? t('thoughtFor', {seconds}) : t('thoughts')) : t('thinking');
    this.thinking.node.classList.toggle('live', !over);
    this.thinking.view.update(message.reasoning);
    return this.thinking.node;
  }

  said() {
    const {message} = this;
    if (message.tokens && this.showsProbabilities()) {
      this.probabilities ??= new ProbabilityView();
      this.probabilities.update(message.tokens);
      return this.probabilities.node;
    }
    this.markdown.update(message.text);
    return message.text ? this.markdown.node : null;
  }
  showsProbabilities() {
    return this.asTokens ?? memory.get('probabilities', true);
  }

  callCards() {
    if (!this.message.calls?.length) return null;
    const key = JSON.stringify(this.message.calls) + this.running;
    if (this.callsKey === key) return this.callNodes;
    this.callsKey = key;
    return (this.callNodes = this.message.calls.filter(Boolean).map((call, place) => this.callCard(call, place)));
  }

  callCard(call, place) {
    const code = new CodeView('json');
    code.update(pretty(call.arguments));
    const card =
        el('div', {class: 'call'},
           el('div', {class: 'call-head'}, icon('tool', 15), el('span', {}, t('toolCall')), el('code', {}, call.name)),
           el('pre', {tabindex: '0'}, code.node));
    if (!this.running && !this.chat.isAnswered(this.message, call)) {
      const result = el('textarea', {rows: '2', 'aria-label': t('toolResult'), placeholder: t('toolResultHint')});
      card.append(
          el('form', {
            class: 'call-result',
            onsubmit: (event) => (event.preventDefault(), this.chat.answerCall(this.message, place, result.value))
          },
             result, el('button', {type: 'submit', class: 'button'}, t('sendResult'))));
    }
    return card;
  }

  waiting() {
    const {message} = this;
    if (!this.running || message.text || message.reasoning || message.calls) return null;
    return (
        this.dots ??=
            el('div', {class: 'dots', 'aria-label': t('waitingForAnswer'), role: 'img'}, el('i'), el('i'), el('i')));
  }

  problem() {
    if (!this.message.error) return null;
    if (this.problemText !== this.message.error) {
      this.problemText = this.message.error;
      this.problemNode =
          el('div', {class: 'problem', role: 'alert'}, el('span', {}, this.message.error),
             el('button', {type: 'button', class: 'button', onclick: () => this.chat.regenerate(this.message)},
                t('tryAgain')));
    }
    return this.problemNode;
  }

  // --- What can be done with it ---

  setRunning(running) {
    this.running = running;
    this.node.classList.toggle('running', running);
    this.update();
    this.updateFoot();
  }

  updateFoot() {
    const {message, chat} = this;
    this.stats = el('span', {class: 'stats'});
    const buttons = [];
    if (!this.running) {
      if (message.text)
        buttons.push(iconButton('copy', t('copy'), () => copyText(message.text).then(() => toast(t('copied')))));
      if (message.role === 'assistant')
        buttons.push(iconButton('redo', t('regenerate'), () => chat.regenerate(message)));
      if (message.role === 'assistant' && message.text && message.finish !== 'tool_calls')
        buttons.push(iconButton('goon', t('goOn'), () => chat.goOn(message)));
      if (message.role !== 'tool') buttons.push(iconButton('edit', t('edit'), () => this.edit()));
      if (message.tokens)
        buttons.push(iconButton(
            'chart', t('probabilities'), () => this.toggleTokens(),
            {'aria-pressed': String(this.showsProbabilities())}));
      buttons.push(iconButton('trash', t('remove'), () => chat.remove(message)));
    }
    replace(this.foot, this.branches(), el('div', {class: 'actions'}, buttons), this.stats);
    this.updateSpeed();
  }

  toggleTokens() {
    this.asTokens = !this.showsProbabilities();
    memory.set('probabilities', this.asTokens);
    this.update();
    this.updateFoot();
  }

  branches() {
    const all = siblingsOf(this.conversation, this.message);
    if (all.length < 2) return null;
    const place = all.indexOf(this.message);
    const go = (step) => this.chat.showBranch(all[place + step]);
    return el(
        'div', {class: 'branches', role: 'group', 'aria-label': t('branches')},
        iconButton('back', t('branchBefore'), () => go(-1), {disabled: place === 0}),
        el('span', {}, `${place + 1} / ${all.length}`),
        iconButton('forward', t('branchAfter'), () => go(1), {disabled: place === all.length - 1}));
  }

  updateSpeed() {
    const {stats, finish, model} = this.message;
    if (!this.stats || this.message.role !== 'assistant') return;
    const parts = [];
    if (stats?.speed) parts.push(t('tokensPerSecond', {n: formatNumber(stats.speed, stats.speed < 10 ? 1 : 0)}));
    if (stats?.completion) parts.push(t('tokenCount', {n: formatNumber(stats.completion)}));
    if (stats?.firstMs && !this.running) parts.push(t('firstToken', {n: formatNumber(stats.firstMs / 1000, 2)}));
    if (stats?.cached && !this.running) parts.push(t('cachedTokens', {n: formatNumber(stats.cached)}));
    if (finish === 'length') parts.push(t('cutByLength'));
    if (finish === 'stopped') parts.push(t('stopped'));
    this.stats.textContent = parts.join(' · ');
    this.stats.title = model ?? '';
  }

  edit() {
    this.editing = true;
    const {message} = this;
    const area = el('textarea', {class: 'edit', 'aria-label': t('edit'), value: message.text});
    const done = () => {
      this.editing = false;
      this.node.classList.remove('editing');
      this.body.replaceChildren();
      this.update();
      this.updateFoot();
    };
    const save = () => {
      const text = area.value;
      done();
      if (text !== message.text) this.chat.saveEdit(message, text);
    };
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') event.stopPropagation(), done();
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) save();
    });
    this.node.classList.add('editing');
    replace(
        this.body, area,
        el('div', {class: 'edit-buttons'}, el('button', {type: 'button', class: 'button', onclick: done}, t('cancel')),
           el('button', {type: 'button', class: 'button primary', onclick: save},
              message.role === 'user' ? t('saveAndSend') : t('saveBranch'))));
    replace(this.foot);
    if (!CSS.supports('field-sizing: content')) area.style.blockSize = `${area.scrollHeight + 4}px`;
    area.focus();
  }
}
