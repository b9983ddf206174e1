// An answer as its tokens, coloured by how likely each was; hover or arrow keys show what else the
// model had in mind. A token: [text, probability, [[text, probability], ...]].
import {el} from './dom.js';
import {t} from './words.js';

const percent = (p) =>
    (p >= 0.9995     ? '100 %' :
         p >= 0.0995 ? `${(100 * p).toFixed(1)} %` :
         p >= 0.0001 ? `${(100 * p).toFixed(2)} %` :
                       '< 0.01 %');

// Seven steps, each twice as unlikely or so: what is even cannot be told apart by eye anyway.
const stepOf = (p) => [0.98, 0.8, 0.5, 0.25, 0.1, 0.02].filter((bound) => p < bound).length;

const shownToken = (text) => text.replaceAll('\n', '↵').replaceAll('\t', '⇥').replaceAll(' ', '␣') || '∅';

export function tokenOf(entry) {
  const probability = (logprob) => Math.round(1e5 * Math.exp(logprob ?? -Infinity)) / 1e5;
  return [
    entry.token, probability(entry.logprob),
    (entry.top_logprobs ?? []).map((other) => [other.token, probability(other.logprob)])
  ];
}

function card(token) {
  const [text, p, others] = token;
  const rows = others.some(([other]) => other === text) ? others : [[text, p], ...others];
  return el('table', {}, el('tbody', {}, rows.map(([other, q]) => {
              const bar = el('span', {class: 'bar'});
              bar.style.inlineSize = `${Math.max(2, 100 * q)}%`;
              return el(
                  'tr', {class: other === text && 'taken'}, el('td', {class: 'token'}, shownToken(other)),
                  el('td', {class: 'bar-cell'}, bar), el('td', {class: 'number'}, percent(q)));
            })));
}

export class ProbabilityView {
  constructor() {
    this.tip = el(
        'div', {class: 'token-tip', role: 'tooltip', id: `tip-${Math.random().toString(36).slice(2)}`, hidden: true});
    this.text = el('div', {
      class: 'tokens',
      tabindex: '0',
      role: 'group',
      'aria-label': t('probabilitiesLabel'),
      'aria-describedby': this.tip.id,
      onmouseover: (event) => this.show(event.target.closest('.tok')),
      onmouseleave: () => this.hide(),
      onkeydown: (event) => this.key(event),
      onblur: () => this.hide()
    });
    this.live = el('span', {class: 'offscreen', role: 'status'});
    const scale =
        el('div', {class: 'scale', 'aria-hidden': 'true'}, el('span', {}, t('likely')),
           [0, 1, 2, 3, 4, 5, 6].map((step) => el('i', {class: `p${step}`})), el('span', {}, t('unlikely')));
    this.node = el('div', {class: 'probabilities'}, this.text, this.tip, this.live, scale);
    this.tokens = [];
    this.place = -1;
  }

  update(tokens) {
    if (tokens.length < this.text.childNodes.length) this.text.replaceChildren();
    for (let i = this.text.childNodes.length; i < tokens.length; ++i) {
      this.text.append(el('span', {class: `tok p${stepOf(tokens[i][1])}`}, tokens[i][0]));
    }
    this.tokens = tokens;
  }

  show(node) {
    if (!node) return;
    this.text.querySelector('.tok.at')?.classList.remove('at');
    node.classList.add('at');
    this.place = [...this.text.childNodes].indexOf(node);
    const token = this.tokens[this.place];
    this.tip.replaceChildren(card(token));
    this.tip.hidden = false;
    const box = this.node.getBoundingClientRect(), at = node.getClientRects()[0] ?? node.getBoundingClientRect();
    const room = box.width - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(at.left - box.left, room))}px`;
    const above = at.bottom + this.tip.offsetHeight + 12 >
        (this.node.closest('.scroller') ?? document.documentElement).getBoundingClientRect().bottom;
    this.tip.style.top = `${above ? at.top - box.top - this.tip.offsetHeight - 6 : at.bottom - box.top + 6}px`;
  }
  hide() {
    this.tip.hidden = true;
    this.text.querySelector('.tok.at')?.classList.remove('at');
  }

  key(event) {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (event.key === 'Escape') this.hide();
    if (!step) return;
    event.preventDefault();
    const place = Math.max(0, Math.min(this.place + step, this.tokens.length - 1));
    this.show(this.text.childNodes[place]);
    const [text, p] = this.tokens[place];
    this.live.textContent = `${shownToken(text)}: ${percent(p)}`;
  }
}
