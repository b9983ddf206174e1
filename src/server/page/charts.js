// Lines over time, as SVG. A chart keeps its nodes and only moves its paths.
import {el, svg} from './dom.js';

const kWidth = 600, kHeight = 150, kLeft = 44, kBottom = 20, kTop = 8;

// The next 1, 2 or 5 times a power of ten, so that the scale does not jump with each value.
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value * 0.999);
}

export class Chart {
  // series: [{name, color: 1 to 4, area}]; format: value -> text; most: a fixed upper end; stacked: each on the one
  // before.
  constructor({title, series, seconds, format, most, stacked}) {
    Object.assign(this, {series, seconds, format, most, stacked});
    this.areas = series.map(({color}) => svg('path', {class: `area c${color}`}));
    this.lines = series.map(({color}) => svg('path', {class: `line c${color}`}));
    this.grid = [0, 0.5, 1].map((share) => {
      const y = this.y(share);
      return {
        share,
        label: svg('text', {x: kLeft - 8, y: y + 4, class: 'axis', 'text-anchor': 'end'}),
        line: svg('line', {x1: kLeft, x2: kWidth, y1: y, y2: y, class: 'grid'})
      };
    });
    this.times = [0, 0.5, 1].map((share) => svg('text', {
                                   x: kLeft + share * (kWidth - kLeft),
                                   y: kHeight - 4,
                                   class: 'axis',
                                   'text-anchor': ['start', 'middle', 'end'][2 * share]
                                 }));
    this.cursor = svg('line', {y1: kTop, y2: kHeight - kBottom, class: 'cursor', visibility: 'hidden'});
    const picture =
        svg('svg', {viewBox: `0 0 ${kWidth} ${kHeight}`, class: 'plot', role: 'img', 'aria-label': title},
            ...this.grid.map(({line}) => line), ...this.areas, ...this.lines, this.cursor,
            ...this.grid.map(({label}) => label), ...this.times);
    picture.addEventListener('pointermove', (event) => this.point(event));
    picture.addEventListener('pointerleave', () => this.point(null));
    this.picture = picture;
    this.values = series.map(() => el('b', {}));
    this.node =
        el('figure', {class: `card chart ${stacked ? 'stacked' : ''}`},
           el('figcaption', {}, el('h3', {}, title),
              el('div', {class: 'legend'},
                 series.map(
                     ({name, color}, i) =>
                         el('span', {}, el('i', {class: `c${color}`}), series.length > 1 && name, this.values[i])))),
           picture);
    this.samples = [];
  }

  y(share) {
    return kHeight - kBottom - share * (kHeight - kBottom - kTop);
  }
  x(time) {
    const end = this.samples.at(-1)?.time ?? 0;
    return kLeft + (kWidth - kLeft) * (1 + (time - end) / (1000 * this.seconds));
  }

  // samples: [{time in ms, values: a number or null for each of the series}], oldest first.
  update(samples) {
    this.samples = samples;
    const summed = samples.map(({values}) => {
      let sum = 0;
      return this.stacked ? values.map((value) => (sum += value ?? 0)) : values;
    });
    this.top = this.most ?? roundUp(Math.max(0, ...summed.flat().map((value) => value ?? 0)));
    for (const {share, label} of this.grid) label.textContent = this.format(share * this.top);
    this.times.forEach(
        (label, i) => (label.textContent = i === 2 ? '0 s' : `−${Math.round(this.seconds * (1 - i / 2))} s`));
    this.series.forEach((series, k) => this.draw(k, samples, summed, series.area || this.stacked));
    this.tell(samples.at(-1));
  }

  draw(k, samples, summed, filled) {
    let line = '', area = '', begin = null, last = null;
    const floor = this.y(0);
    samples.forEach(({time}, i) => {
      const value = summed[i][k];
      if (value === null || value === undefined) return;
      const x = Math.max(kLeft, this.x(time)).toFixed(1), y = this.y(Math.min(1, value / this.top)).toFixed(1);
      line += `${begin === null ? 'M' : 'L'}${x} ${y}`;
      begin ??= x;
      last = x;
    });
    if (begin !== null && filled) {
      area = `${line}L${last} ${floor}L${begin} ${floor}Z`;
      // What lies below is another's.
      if (this.stacked && k > 0) {
        const below = samples
                          .map(
                              ({time}, i) => `L${Math.max(kLeft, this.x(time)).toFixed(1)} ${
                                  this.y(Math.min(1, summed[i][k - 1] / this.top)).toFixed(1)}`)
                          .reverse()
                          .join('');
        area = `${line}${below}Z`;
      }
    }
    this.lines[k].setAttribute('d', line);
    this.areas[k].setAttribute('d', area);
  }

  tell(sample) {
    this.values.forEach((node, k) => {
      const value = sample?.values[k];
      node.textContent = value === null || value === undefined ? '–' : this.format(value);
    });
  }

  point(event) {
    const box = this.picture.getBoundingClientRect();
    const x = event && ((event.clientX - box.left) / box.width) * kWidth;
    const near = event &&
        this.samples.reduce(
            (best, sample) =>
                (best && Math.abs(this.x(best.time) - x) < Math.abs(this.x(sample.time) - x) ? best : sample),
            null);
    this.cursor.setAttribute('visibility', near ? 'visible' : 'hidden');
    if (near)
      for (const end of ['x1', 'x2']) this.cursor.setAttribute(end, this.x(near.time));
    this.tell(near ?? this.samples.at(-1));
  }
}
