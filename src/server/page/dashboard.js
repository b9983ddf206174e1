// How the server is, live, from its own /metrics, /props, /slots, /debug/steps and /debug/log: what runs and waits,
// what the cache holds, how fast answers come, what steps the engine makes, whose requests they are, and what is
// logged.
import {json, request} from './api.js';
import {Chart} from './charts.js';
import {el, replace} from './dom.js';
import {LogTail} from './logtail.js';
import {byLabel, countOf, histogramOf, isInFirstBucket, meanOf, parseMetrics, quantileOf, sumOf} from './metrics.js';
import {StepTimeline} from './timeline.js';
import {formatNumber, formatSeconds, t} from './words.js';

const kEveryMs = 1000;
const kSeconds = 120;       // that charts show
const kWindowSeconds = 60;  // of "lately"
const kRateSeconds = 3;     // over which rates are taken: one scrape alone is a jagged line

const kLatencies = [
  ['ttft', 'vllm:time_to_first_token_seconds'],
  ['tpot', 'vllm:request_time_per_output_token_seconds'],
  ['itl', 'vllm:inter_token_latency_seconds'],
  ['queueTime', 'vllm:request_queue_time_seconds'],
  ['e2e', 'vllm:e2e_request_latency_seconds'],
];
const kQuantiles = [0.5, 0.9, 0.99];
const kPhaseColors = 4;

const percent = (share) => `${formatNumber(100 * share, share > 0 && share < 0.1 ? 1 : 0)} %`;
const count = (value) => formatNumber(value, Number.isInteger(value) ? 0 : 1);
const rate = (value) => formatNumber(value, value > 0 && value < 10 ? 1 : 0);

function latencyText(histogram, q) {
  return isInFirstBucket(histogram, q) ? `< ${formatSeconds(histogram[0][0])}` :
                                         formatSeconds(quantileOf(histogram, q));
}

export class Dashboard {
  constructor() {
    this.scrapes = [];          // {time, metrics}, oldest first
    this.withheld = new Set();  // paths
    this.timer = null;
    this.phases = null;
    this.tiles = {};
    this.charts = {
      tokens: new Chart({
        title: t('throughput'),
        seconds: kSeconds,
        format: rate,
        series: [{name: t('outputTokens'), color: 1, area: true}, {name: t('promptTokens'), color: 2}]
      }),
      requests: new Chart({
        title: t('requests'),
        seconds: kSeconds,
        format: count,
        series: [{name: t('running'), color: 1, area: true}, {name: t('waiting'), color: 3}]
      }),
      cache: new Chart({
        title: t('kvUse'),
        seconds: kSeconds,
        format: percent,
        most: 1,
        series: [{name: t('kvUse'), color: 1, area: true}]
      }),
    };
    this.steps = el('div', {class: 'chart-slot'});
    this.problem = el('p', {class: 'problem', role: 'alert', hidden: true});
    this.latency = el('div', {class: 'card'});
    this.sessions = el('div', {class: 'card'});
    this.keys = el('div', {class: 'card', hidden: true});
    this.facts = el('div', {class: 'card'});
    this.timeline = new StepTimeline();
    this.log = new LogTail();
    this.node =
        el('div', {class: 'dashboard', tabindex: '0', role: 'region', 'aria-label': t('dashboard')},
           el('div', {class: 'dashboard-inner'}, el('h2', {class: 'offscreen'}, t('dashboard')), this.problem,
              this.tileRow(),
              el('div', {class: 'cards'}, this.charts.tokens.node, this.charts.requests.node, this.charts.cache.node,
                 this.steps),
              this.timeline.node, el('div', {class: 'cards'}, this.latency, this.sessions, this.keys), this.facts,
              this.log.node));
  }

  tileRow() {
    const tile = (name, unit) => {
      this.tiles[name] = el('span', {class: 'value'}, '–');
      return el(
          'div', {class: 'tile'}, el('span', {class: 'tile-name'}, t(name)),
          el('span', {class: 'tile-value'}, this.tiles[name], unit && el('span', {class: 'unit'}, unit)));
    };
    return el(
        'div', {class: 'tiles'}, tile('running'), tile('waiting'), tile('kvUse'), tile('prefixHits'),
        tile('outputTokens', t('perSecond')), tile('promptTokens', t('perSecond')));
  }

  // Scrapes while it is shown; what came before stays.
  start() {
    if (this.timer) return;
    const tick = async () => {
      if (!document.hidden) await this.scrape();
      if (this.timer) this.timer = setTimeout(tick, kEveryMs);
    };
    this.timer = setTimeout(tick, 0);
  }
  stop() {
    clearTimeout(this.timer);
    this.timer = null;
  }

  async scrape() {
    try {
      const [text, slots, steps, log] = await Promise.all([
        request('metrics').then((response) => response.text()), this.ask('slots'),
        this.ask('debug/steps', this.timeline.last), this.ask('debug/log', this.log.last)
      ]);
      this.scrapes.push({time: Date.now(), metrics: parseMetrics(text)});
      const oldest = Date.now() - 1000 * (kSeconds + kWindowSeconds);
      while (this.scrapes[0].time < oldest) this.scrapes.shift();
      this.problem.hidden = true;
      this.show(slots);
      if (steps) this.timeline.add(steps.data, Date.now());
      if (log) this.log.add(log.data);
      if (!this.props) this.readProps();
    } catch (error) {
      // What comes back may be another server, that counts from 1.
      this.timeline.forget();
      this.log.forget();
      this.problem.textContent = t('noMetrics', {why: error.message});
      this.problem.hidden = false;
    }
  }

  // null: it is not told. What the server refuses (the log, where it has several keys) is not asked for again.
  async ask(path, after) {
    if (this.withheld.has(path)) return null;
    try {
      return await json(after === undefined ? path : `${path}?after=${after}`, {quiet: true});
    } catch ({status}) {
      if (status >= 400 && status < 500 && status !== 401) this.withheld.add(path);
      return null;
    }
  }

  async readProps() {
    this.props = {};
    const [props, version] = await Promise.all(
        [json('props', {quiet: true}).catch(() => null), json('version', {quiet: true}).catch(() => null)]);
    this.props = {...props, version: version?.version};
  }

  // The scrape of `seconds` before the place `i`, or the oldest.
  before(i, seconds) {
    const from = this.scrapes[i].time - 1000 * seconds;
    let k = i;
    while (k > 0 && this.scrapes[k].time > from) --k;
    return this.scrapes[k];
  }

  // A counter's growth a second, at each scrape; null at the first and where the server began anew.
  rateAt(i, read) {
    const then = this.before(i, kRateSeconds), now = this.scrapes[i];
    const grown = read(now.metrics) - read(then.metrics);
    return then === now || grown < 0 ? null : (1000 * grown) / (now.time - then.time);
  }

  samples(...reads) {
    return this.scrapes.map(({time}, i) => ({time, values: reads.map((read) => read(i))}));
  }

  show(slots) {
    const gauge = (read, name) => (i) => read(this.scrapes[i].metrics, name);
    const grows = (name) => (i) => this.rateAt(i, (metrics) => sumOf(metrics, name));
    this.charts.tokens.update(this.samples(grows('vllm:generation_tokens_total'), grows('vllm:prompt_tokens_total')));
    this.charts.requests.update(
        this.samples(gauge(sumOf, 'vllm:num_requests_running'), gauge(sumOf, 'vllm:num_requests_waiting')));
    this.charts.cache.update(this.samples(gauge(meanOf, 'vllm:kv_cache_usage_perc')));
    this.showSteps();
    this.showTiles();
    this.showLatency();
    this.showSessions(slots);
    this.showFacts();
    this.showKeys();
  }

  // The engine thread's time by phase of a step, as a share of a second.
  showSteps() {
    const {metrics} = this.scrapes.at(-1);
    const phases = [...byLabel(metrics, 'headrace:host_seconds_total', 'phase')]
                       .sort((a, b) => b[1] - a[1])
                       .map(([phase]) => phase)
                       .slice(0, kPhaseColors);
    if (phases.length === 0) return;
    if (!this.phases) {
      this.phases = phases;
      this.charts.steps = new Chart({
        title: t('stepTime'),
        seconds: kSeconds,
        stacked: true,
        most: 1,
        format: percent,
        series: phases.map((name, i) => ({name, color: i + 1}))
      });
      replace(this.steps, this.charts.steps.node);
    }
    this.charts.steps.update(this.samples(...this.phases.map(
        (phase) => (i) =>
            this.rateAt(i, (from) => byLabel(from, 'headrace:host_seconds_total', 'phase').get(phase) ?? 0))));
  }

  showTiles() {
    const last = this.scrapes.length - 1;
    const {metrics} = this.scrapes[last];
    const queries = sumOf(metrics, 'vllm:prefix_cache_queries_total');
    const shown = (name, text) => (this.tiles[name].textContent = text);
    shown('running', formatNumber(sumOf(metrics, 'vllm:num_requests_running')));
    shown('waiting', formatNumber(sumOf(metrics, 'vllm:num_requests_waiting')));
    shown('kvUse', percent(meanOf(metrics, 'vllm:kv_cache_usage_perc')));
    shown('prefixHits', queries > 0 ? percent(sumOf(metrics, 'vllm:prefix_cache_hits_total') / queries) : '–');
    for (const [tile, name] of [
             ['outputTokens', 'vllm:generation_tokens_total'], ['promptTokens', 'vllm:prompt_tokens_total']]) {
      shown(tile, rate(this.rateAt(last, (from) => sumOf(from, name)) ?? 0));
    }
  }

  table(head, rows) {
    return el(
        'table', {class: 'figures'}, el('thead', {}, el('tr', {}, head.map((text) => el('th', {scope: 'col'}, text)))),
        el('tbody', {},
           rows.map(
               (cells) =>
                   el('tr', {}, cells.map((cell, i) => el(i === 0 ? 'th' : 'td', {scope: i === 0 && 'row'}, cell))))));
  }

  // Of the last minute; where nothing ended in it, since the start.
  showLatency() {
    const last = this.scrapes.length - 1;
    const {metrics} = this.scrapes[last];
    const then = this.before(last, kWindowSeconds).metrics;
    const lately = kLatencies.some(([, name]) => countOf(histogramOf(metrics, name, then)) > 0);
    const rows = kLatencies.map(([key, name]) => {
      const histogram = histogramOf(metrics, name, lately ? then : null);
      return [
        el('abbr', {title: t(`${key}_hint`)}, t(key)), ...kQuantiles.map((q) => latencyText(histogram, q)),
        formatNumber(countOf(histogram))
      ];
    });
    replace(
        this.latency, el('h3', {}, t('latency'), ' ', el('small', {}, lately ? t('lastMinute') : t('sinceStart'))),
        this.table(['', 'p50', 'p90', 'p99', 'n'], rows));
  }

  showSessions(slots) {
    const active = (slots ?? []).filter((slot) => slot.is_processing);
    const rows = active.slice(0, 12).map((slot) => {
      const made = slot.next_token?.[0]?.n_decoded ?? 0, left = slot.next_token?.[0]?.n_remain ?? 0;
      const bar = el('progress', {max: String(Math.max(1, made + left)), 'aria-label': t('outputTokens')});
      bar.value = made;
      return [
        `#${slot.id_task}`, formatNumber(slot.n_prompt_tokens ?? 0), formatNumber(slot.n_prompt_tokens_cache ?? 0),
        formatNumber(made), bar
      ];
    });
    replace(
        this.sessions,
        el('h3', {}, t('underWay'), ' ', el('small', {}, slots ? `${active.length} / ${slots.length}` : '')),
        rows.length > 0 ? this.table(['', t('promptTokens'), t('cached'), t('outputTokens'), ''], rows) :
                          el('p', {class: 'faint none'}, slots ? t('nothingRuns') : t('notToldHere')));
  }

  showFacts() {
    const last = this.scrapes.length - 1;
    const {metrics} = this.scrapes[last];
    const steps = this.rateAt(last, (from) => sumOf(from, 'headrace:steps_total'));
    const reasons =
        [...byLabel(metrics, 'vllm:request_success_total', 'finished_reason')].filter(([, count]) => count > 0);
    const perStep = histogramOf(metrics, 'vllm:iteration_tokens_total');
    const rows = [
      [
        t('model'),
        this.props?.model_alias &&
            `${this.props.model_alias}${this.props.model_ftype ? ` · ${this.props.model_ftype}` : ''}`
      ],
      [
        t('context'),
        this.props?.default_generation_settings?.n_ctx && formatNumber(this.props.default_generation_settings.n_ctx)
      ],
      [t('stepsPerSecond'), steps === null ? '–' : rate(steps)],
      [
        t('tokensPerStep'),
        countOf(perStep) > 0 ?
            `${formatNumber(quantileOf(perStep, 0.5), 1)} / ${formatNumber(quantileOf(perStep, 0.99), 0)}` :
            '–'
      ],
      [t('preemptions'), formatNumber(sumOf(metrics, 'vllm:num_preemptions_total'))],
      [t('answers'), reasons.map(([reason, count]) => `${reason} ${formatNumber(count)}`).join(' · ') || '–'],
      [t('version'), this.props?.version],
    ];
    replace(
        this.facts, el('h3', {}, t('engine')),
        el('ul', {class: 'facts'},
           rows.filter(([, value]) => value).map(([name, value]) => el('li', {}, el('span', {}, name), value))));
  }

  // Where the server counts by key: requests under way, refusals of limits, and pinned prompts.
  showKeys() {
    const {metrics} = this.scrapes.at(-1);
    const refused = byLabel(metrics, 'headrace:quota_refusals_total', 'key');
    const pinned = byLabel(metrics, 'headrace:cache_pinned_tokens', 'key');
    const open = (wanted) => byLabel(metrics, 'headrace:requests_open', 'key', ({state}) => state === wanted);
    const running = open('running'), waiting = open('waiting');
    const names = [...new Set([...refused.keys(), ...pinned.keys(), ...running.keys()])].sort();
    this.keys.hidden = names.length === 0;
    if (names.length === 0) return;
    replace(
        this.keys, el('h3', {}, t('tenants')),
        this.table(
            [t('key'), t('running'), t('waiting'), t('refusals'), t('pinnedTokens')],
            names.map(
                (name) =>
                    [name || '–',
                     ...[running, waiting, refused, pinned].map((counts) => formatNumber(counts.get(name) ?? 0))])));
  }
}
