// Prometheus' text format, and what a dashboard asks of it.

const kLine = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)(?: \d+)?$/;
const kLabel = /([a-zA-Z_]\w*)="((?:\\.|[^"\\])*)"/g;

// name -> [{labels, value}]
export function parseMetrics(text) {
  const series = new Map();
  for (const line of text.split('\n')) {
    const found = line[0] === '#' ? null : kLine.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, name, value] of (found[2] ?? '').matchAll(kLabel))
      labels[name] = value.replaceAll('\\"', '"').replaceAll('\\\\', '\\');
    const value = found[3] === '+Inf' ? Infinity : found[3] === '-Inf' ? -Infinity : Number(found[3]);
    if (!series.has(found[1])) series.set(found[1], []);
    series.get(found[1]).push({labels, value});
  }
  return series;
}

// Over all its series, as of several models.
export function sumOf(metrics, name) {
  return (metrics.get(name) ?? []).reduce((sum, {value}) => sum + value, 0);
}

export function meanOf(metrics, name) {
  const all = metrics.get(name) ?? [];
  return all.length > 0 ? sumOf(metrics, name) / all.length : 0;
}

// label's value -> sum
export function byLabel(metrics, name, label, where = () => true) {
  const sums = new Map();
  for (const {labels, value} of metrics.get(name) ?? []) {
    if (label in labels && where(labels)) sums.set(labels[label], (sums.get(labels[label]) ?? 0) + value);
  }
  return sums;
}

// A histogram as [[upper bound, how many are at most that], ...], by bound. `before`: only what came since.
export function histogramOf(metrics, name, before = null) {
  const read = (from) => {
    const sums = new Map();
    for (const [bound, count] of byLabel(from, `${name}_bucket`, 'le'))
      sums.set(bound === '+Inf' ? Infinity : Number(bound), count);
    return sums;
  };
  const now = read(metrics);
  const then = before ? read(before) : new Map();
  return [...now].map(([bound, count]) => [bound, count - (then.get(bound) ?? 0)]).sort((a, b) => a[0] - b[0]);
}

export const countOf = (histogram) => histogram.at(-1)?.[1] ?? 0;

// Of the first bucket no more is known than where it ends.
export const isInFirstBucket = (histogram, q) => countOf(histogram) > 0 && histogram[0][1] >= q * countOf(histogram);

// As Prometheus' histogram_quantile: linear within a bucket. Null where there is nothing; of the last
// bucket no more is known than where it begins.
export function quantileOf(histogram, q) {
  const total = countOf(histogram);
  if (!(total > 0)) return null;
  const rank = q * total;
  let below = 0, from = 0;
  for (const [bound, count] of histogram) {
    if (count >= rank && count > below)
      return bound === Infinity ? from : from + ((bound - from) * (rank - below)) / (count - below);
    below = count;
    from = bound;
  }
  return from;
}
