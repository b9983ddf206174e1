// The last lines of the server's log, as they come.
import {el} from './dom.js';
import {t} from './words.js';

const kLines = 200;
const kLevel = /^\S+ (warning|error) /;

export class LogTail {
  constructor() {
    this.last = 0;
    this.lines = el('pre', {class: 'log', tabindex: '0', role: 'log', 'aria-live': 'off', 'aria-label': t('log')});
    this.none = el('p', {class: 'faint none'}, t('noLog'));
    this.node = el('div', {class: 'card', hidden: true}, el('h3', {}, t('log')), this.lines, this.none);
  }

  // `lines`: what /debug/log told of those behind `last`.
  add(lines) {
    if (lines.length > 0 && lines[0].number <= this.last) this.lines.replaceChildren();
    const atEnd = this.lines.scrollTop + this.lines.clientHeight >= this.lines.scrollHeight - 4;
    for (const {number, text} of lines) {
      this.last = number;
      this.lines.append(el('span', {class: kLevel.exec(text)?.[1]}, `${text}\n`));
    }
    while (this.lines.childElementCount > kLines) this.lines.firstChild.remove();
    this.node.hidden = false;
    this.lines.hidden = this.lines.childElementCount === 0;
    this.none.hidden = !this.lines.hidden;
    if (atEnd && lines.length > 0) this.lines.scrollTop = this.lines.scrollHeight;
  }

  forget() {
    this.last = 0;
    this.lines.replaceChildren();
  }
}
