// The engine's last steps as bars over time: as wide as a step took, as high as its tokens, pieces of prompts above the
// sequences that go on.
import {el, svg} from './dom.js';
import {formatNumber, formatSeconds, t} from './words.js';

const kWidth = 1200, kHeight = 130, kLeft = 44, kBottom = 20, kTop = 8;
const kSeconds = 10;  // that are shown
const kThinnest = 1, kLowest = 2;

export class StepTimeline {
  constructor() {
    this.steps = [];  // of the server, each with `begin`: when it began, in ms of this clock
    this.bars = ['prompt_tokens', 'decode_tokens'].map((name, i) => svg('path', {class: `bar c${2 - i}`}));
    this.ticks = [0, 0.5, 1].map(
        (share) =>
            svg('text', {
              x: kLeft + share * (kWidth - kLeft),
              y: kHeight - 4,
              class: 'axis',
              'text-anchor': ['start', 'middle', 'end'][2 * share]
            },
                `${share === 1 ? '' : '−'}${kSeconds * (1 - share)} s`));
    this.most = svg('text', {x: kLeft - 8, y: kTop + 8, class: 'axis', 'text-anchor': 'end'});
    const floor = kHeight - kBottom;
    this.picture =
        svg('svg', {viewBox: `0 0 ${kWidth} ${kHeight}`, class: 'plot', role: 'img', 'aria-label': t('stepTimeline')},
            svg('line', {x1: kLeft, x2: kWidth, y1: floor, y2: floor, class: 'grid'}), ...this.bars, this.most,
            ...this.ticks);
    this.picture.addEventListener('pointermove', (event) => this.point(event));
    this.picture.addEventListener('pointerleave', () => this.tell(this.steps.at(-1)));
    this.told = el('span', {class: 'told'}, '–');
    this.node =
        el('figure', {class: 'card chart', hidden: true},
           el('figcaption', {}, el('h3', {}, t('stepTimeline')),
              el('div', {class: 'legend'}, el('span', {}, el('i', {class: 'c1'}), t('outputTokens')),
                 el('span', {}, el('i', {class: 'c2'}), t('promptTokens')), this.told)),
           this.picture);
  }

  get last() {
    return this.steps.at(-1)?.number ?? 0;
  }

  // `steps`: what /debug/steps told of those behind `last`, at `now` in ms.
  add(steps, now) {
    if (steps.length > 0 && steps[0].number <= this.last) this.steps = [];
    this.steps.push(...steps.map((step) => ({...step, begin: now - 1000 * step.age_seconds})));
    const oldest = now - 1000 * kSeconds;
    this.steps =
        this.steps.filter(({begin, seconds}, i) => begin + 1000 * seconds > oldest || i === this.steps.length - 1);
    this.node.hidden = false;
    this.draw(now);
  }

  // Of a server that began anew.
  forget() {
    this.steps = [];
  }

  x(time) {
    return Math.max(kLeft, kLeft + (kWidth - kLeft) * (1 + (time - this.now) / (1000 * kSeconds)));
  }

  draw(now) {
    this.now = now;
    const most = Math.max(1, ...this.steps.map((step) => step.prompt_tokens + step.decode_tokens));
    const high = (tokens) => (tokens > 0 ? Math.max(kLowest, (tokens / most) * (kHeight - kBottom - kTop)) : 0);
    const paths = ['', ''];
    for (const {begin, seconds, prompt_tokens: prompt, decode_tokens: decode} of this.steps) {
      if (begin + 1000 * seconds < now - 1000 * kSeconds) continue;
      const left = this.x(begin), wide = Math.max(kThinnest, this.x(begin + 1000 * seconds) - left);
      const lower = high(decode), upper = high(prompt);
      const bar = (bottom, height) =>
          (height > 0 ? `M${left.toFixed(1)} ${bottom.toFixed(1)}v${- height.toFixed(1)}h${wide.toFixed(1)}v${
                            height.toFixed(1)}z` :
                        '');
      paths[1] += bar(kHeight - kBottom, lower);
      paths[0] += bar(kHeight - kBottom - lower, upper);
    }
    this.bars.forEach((bar, i) => bar.setAttribute('d', paths[i]));
    this.most.textContent = formatNumber(most);
    this.tell(this.steps.at(-1));
  }

  tell(step) {
    this.told.textContent = step ?
        `#${step.number} · ${formatSeconds(step.seconds)} · ${
            formatNumber(step.prompt_tokens + step.decode_tokens)} / ${formatNumber(step.sequences)}` :
        '–';
    this.told.title = t('stepTold');
  }

  point(event) {
    const box = this.picture.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * kWidth;
    const away = ({begin, seconds}) => {
      const left = this.x(begin), right = this.x(begin + 1000 * seconds);
      return x < left ? left - x : Math.max(0, x - right);
    };
    this.tell(this.steps.reduce((best, step) => (best && away(best) <= away(step) ? best : step), null));
  }
}
