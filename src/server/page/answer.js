// One answer of the model: the request that a conversation becomes, and the stream that comes back.
import {stream} from './api.js';
import {pathTo, wireMessages} from './conversation.js';
import {tokenOf} from './probabilities.js';
import {t} from './words.js';

const kSampling = [
  'temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'repetition_penalty', 'presence_penalty', 'frequency_penalty',
  'seed'
];
const kAlternatives = 5;

// Throws where the schema or the tools are no JSON.
function forms(settings) {
  const parsed = (name, text) => {
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new Error(`${name}: ${error.message}`);
    }
  };
  const fields = {};
  if (settings.format === 'json') fields.response_format = {type: 'json_object'};
  if (settings.format === 'schema') {
    fields.response_format = {
      type: 'json_schema',
      json_schema: {name: 'answer', strict: true, schema: parsed('JSON schema', settings.schema)}
    };
  }
  if (settings.tools?.trim())
    fields.tools =
        parsed('tools', settings.tools).map((tool) => (tool.function ? tool : {type: 'function', function: tool}));
  return fields;
}

function requestOf(conversation, message, goOn) {
  const {settings} = conversation;
  const path = pathTo(conversation, goOn ? message.id : message.parent);
  const body = {
    messages: wireMessages(conversation, path),
    stream: true,
    stream_options: {include_usage: true, continuous_usage_stats: true},
    ...forms(settings)
  };
  if (settings.model) body.model = settings.model;
  for (const name of kSampling)
    if (typeof settings[name] === 'number') body[name] = settings[name];
  const stops = (settings.stop ?? '').split('\n').filter(Boolean);
  if (stops.length > 0) body.stop = stops;
  if (settings.reasoning_effort) body.reasoning_effort = settings.reasoning_effort;
  if (settings.probabilities) Object.assign(body, {logprobs: true, top_logprobs: kAlternatives});
  if (goOn) Object.assign(body, {continue_final_message: true, add_generation_prompt: false});
  return body;
}

function takeCall(message, delta) {
  message.calls ??= [];
  const call = (message.calls[delta.index ?? 0] ??= {id: '', name: '', arguments: ''});
  if (delta.id) call.id = delta.id;
  call.name += delta.function?.name ?? '';
  call.arguments += delta.function?.arguments ?? '';
}

function takeDelta(message, choice, now) {
  const {delta = {}} = choice;
  const thought = delta.reasoning_content ?? delta.reasoning ?? '';
  if (thought) {
    message.reasoning = (message.reasoning ?? '') + thought;
    message.thinkingFrom ??= now;
  }
  if (delta.content || delta.tool_calls) {
    if (message.thinkingFrom && !message.thinkingMs) message.thinkingMs = now - message.thinkingFrom;
    message.text += delta.content ?? '';
  }
  for (const call of delta.tool_calls ?? []) takeCall(message, call);
  const entries = choice.logprobs?.content;
  if (entries?.length) (message.tokens ??= []).push(...entries.map(tokenOf));
  if (choice.finish_reason) message.finish = choice.finish_reason;
}

function takeUsage(stats, usage) {
  stats.prompt = usage.prompt_tokens;
  stats.completion = usage.completion_tokens;
  stats.cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
}

// Fills `message` as the answer comes; `changed` is called for each event. Never throws: what went
// wrong is `message.error`.
export async function runAnswer(conversation, message, {signal, goOn = false, changed}) {
  const began = performance.now();
  const stats = {};
  let first = null;
  delete message.error;
  delete message.finish;
  message.model = conversation.settings.model;
  try {
    const isWhole = await stream('v1/chat/completions', requestOf(conversation, message, goOn), signal, (event) => {
      const now = performance.now();
      if (event.usage) takeUsage(stats, event.usage);
      const choice = event.choices?.[0];
      if (choice) {
        if (first === null) {
          first = now;
          stats.firstMs = now - began;
          stats.before = Math.max(1, stats.completion ?? 1);  // tokens of the first event
        }
        takeDelta(message, choice, now);
      }
      const seconds = (now - first) / 1000;
      if (first !== null && stats.completion > stats.before && seconds > 0.05)
        stats.speed = (stats.completion - stats.before) / seconds;
      message.stats = stats;
      changed();
    });
    if (!isWhole && !message.finish) throw new Error(t('cutOff'));
    message.finish ??= 'stop';
  } catch (error) {
    if (signal.aborted)
      message.finish = 'stopped';
    else
      message.error = error.message || String(error);
  }
  if (message.thinkingFrom && !message.thinkingMs) message.thinkingMs = performance.now() - message.thinkingFrom;
  delete message.thinkingFrom;
  conversation.updated = Date.now();
  changed();
}
