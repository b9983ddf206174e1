// TeX as models write it, to MathML, which browsers set themselves: no fonts, no styles, no markup.
// What it does not know is shown by its name; what cannot be read at all stays TeX.

const kMathMl = 'http://www.w3.org/1998/Math/MathML';
const kDepthMax = 100;  // of groups and commands in each other

function node(tag, attributes = {}, ...children) {
  const made = document.createElementNS(kMathMl, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const table = (text) => new Map(
    text.trim().split(/\s+/).map((pair) => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)]));

// clang-format off
const kLetters = table(`alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ vartheta=ϑ iota=ι kappa=κ lambda=λ mu=μ nu=ν
  xi=ξ omicron=ο pi=π varpi=ϖ rho=ρ varrho=ϱ sigma=σ varsigma=ς tau=τ upsilon=υ phi=ϕ varphi=φ chi=χ psi=ψ omega=ω Gamma=Γ Delta=Δ Theta=Θ
  Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ Upsilon=Υ Phi=Φ Psi=Ψ Omega=Ω hbar=ℏ ell=ℓ infty=∞ partial=∂ nabla=∇ Re=ℜ Im=ℑ aleph=ℵ emptyset=∅ varnothing=∅
  imath=ı jmath=ȷ wp=℘ angle=∠ degree=° prime=′ top=⊤ bot=⊥ triangle=△ square=□ blacksquare=■ checkmark=✓ dagger=† ddagger=‡ hslash=ℏ
  ldots=… dots=… cdots=⋯ vdots=⋮ ddots=⋱ dotsc=… dotsb=⋯ therefore=∴ because=∵ Box=□ Diamond=◇ clubsuit=♣ heartsuit=♡ S=§ P=¶ pounds=£`);

const kOperators = table(`times=× cdot=⋅ div=÷ pm=± mp=∓ ast=∗ star=⋆ circ=∘ bullet=∙ oplus=⊕ ominus=⊖ otimes=⊗ odot=⊙ cap=∩ cup=∪ setminus=∖ wedge=∧ vee=∨
  land=∧ lor=∨ neg=¬ lnot=¬ le=≤ leq=≤ leqslant=⩽ ge=≥ geq=≥ geqslant=⩾ ne=≠ neq=≠ ll=≪ gg=≫ equiv=≡ sim=∼ simeq=≃ approx=≈ cong=≅ propto=∝ doteq=≐
  in=∈ notin=∉ ni=∋ subset=⊂ supset=⊃ subseteq=⊆ supseteq=⊇ subsetneq=⊊ perp=⊥ parallel=∥ mid=∣ nmid=∤ vdash=⊢ models=⊨ prec=≺ succ=≻ preceq=⪯ succeq=⪰
  to=→ rightarrow=→ leftarrow=← leftrightarrow=↔ Rightarrow=⇒ Leftarrow=⇐ Leftrightarrow=⇔ implies=⟹ impliedby=⟸ iff=⟺ mapsto=↦ longrightarrow=⟶
  longleftarrow=⟵ Longrightarrow=⟹ longmapsto=⟼ uparrow=↑ downarrow=↓ Uparrow=⇑ Downarrow=⇓ hookrightarrow=↪ nearrow=↗ searrow=↘ rightharpoonup=⇀
  gets=← forall=∀ exists=∃ nexists=∄ colon=: lt=< gt=> triangleq=≜ coloneqq=≔ vartriangle=△ triangleleft=◁ triangleright=▷ bowtie=⋈ asymp=≍ sqcup=⊔ sqcap=⊓
  uplus=⊎ amalg=⨿ dotplus=∔ ltimes=⋉ rtimes=⋊ leadsto=⇝ rightleftharpoons=⇌ lesssim=≲ gtrsim=≳ backslash=\\`);

// Their limits stand above and below where there is room.
const kBig = table('sum=∑ prod=∏ coprod=∐ bigcup=⋃ bigcap=⋂ bigoplus=⨁ bigotimes=⨂ bigvee=⋁ bigwedge=⋀ bigsqcup=⨆');
const kIntegrals = table('int=∫ iint=∬ iiint=∭ oint=∮ oiint=∯');
const kLimits = new Set('lim max min sup inf limsup liminf argmax argmin Pr det gcd injlim projlim'.split(' '));
const kFunctions = new Set('sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth log ln lg exp deg dim hom ker arg mod'.split(' '));
const kFences = table('lbrace={ rbrace=} lbrack=[ rbrack=] langle=⟨ rangle=⟩ lceil=⌈ rceil=⌉ lfloor=⌊ rfloor=⌋ vert=| lvert=| rvert=| Vert=‖ lVert=‖ rVert=‖ lgroup=( rgroup=)');
const kAccents = table('hat=^ widehat=^ bar=¯ overline=‾ tilde=~ widetilde=~ vec=→ dot=˙ ddot=¨ acute=´ grave=` breve=˘ check=ˇ overrightarrow=→ overleftarrow=← overbrace=⏞ mathring=˚');
const kUnder = table('underline=_ underbrace=⏟');
const kSpaces = {',': '0.167em', ':': '0.222em', ';': '0.278em', '>': '0.222em', '!': '-0.167em', ' ': '0.25em', quad: '1em', qquad: '2em', enspace: '0.5em', thinspace: '0.167em', '~': '0.25em', '\n': '0.25em'};
const kFonts = {mathbb: 'double-struck', mathbf: 'bold', boldsymbol: 'bold', bm: 'bold', mathcal: 'script', mathscr: 'script', mathfrak: 'fraktur', mathsf: 'sans-serif', mathtt: 'monospace', mathrm: 'normal', mathit: 'italic', mathnormal: 'italic', bf: 'bold', rm: 'normal', pmb: 'bold'};
const kText = new Set(['text', 'textrm', 'textbf', 'textit', 'textsf', 'texttt', 'mbox', 'hbox', 'textnormal', 'operatorname', 'operatorname*', 'mathop']);
// Environments: the fences around their rows.
const kTables = {matrix: ['', ''], pmatrix: ['(', ')'], bmatrix: ['[', ']'], Bmatrix: ['{', '}'], vmatrix: ['|', '|'], Vmatrix: ['‖', '‖'], smallmatrix: ['', ''],
  cases: ['{', ''], array: ['', ''], aligned: ['', ''], align: ['', ''], 'align*': ['', ''], gathered: ['', ''], gather: ['', ''], 'gather*': ['', ''], split: ['', ''], equation: ['', ''], 'equation*': ['', ''], alignat: ['', ''], 'alignat*': ['', ''], eqnarray: ['', '']};
const kLeftColumns = new Set(['cases', 'aligned', 'align', 'align*', 'split', 'alignat', 'alignat*', 'eqnarray']);
// clang-format on

// First code points of Unicode's mathematical letters: capital, small, digit; and where they are elsewhere.
const kAlphabets = {
  bold: [0x1d400, 0x1d41a, 0x1d7ce],
  'double-struck': [0x1d538, 0x1d552, 0x1d7d8],
  script: [0x1d49c, 0x1d4b6],
  fraktur: [0x1d504, 0x1d51e],
  'sans-serif': [0x1d5a0, 0x1d5ba, 0x1d7e2],
  monospace: [0x1d670, 0x1d68a, 0x1d7f6],
};
const kElsewhere = {
  'double-struck': {C: 'ℂ', H: 'ℍ', N: 'ℕ', P: 'ℙ', Q: 'ℚ', R: 'ℝ', Z: 'ℤ'},
  script: {B: 'ℬ', E: 'ℰ', F: 'ℱ', H: 'ℋ', I: 'ℐ', L: 'ℒ', M: 'ℳ', R: 'ℛ', e: 'ℯ', g: 'ℊ', o: 'ℴ'},
  fraktur: {C: 'ℭ', H: 'ℌ', I: 'ℑ', R: 'ℜ', Z: 'ℨ'}
};

function letterOf(character, font) {
  const other = kElsewhere[font]?.[character];
  const alphabet = kAlphabets[font];
  if (other || !alphabet) return other ?? character;
  const code = character.charCodeAt(0);
  const [capital, small, digit] = alphabet;
  if (code >= 65 && code <= 90) return String.fromCodePoint(capital + code - 65);
  if (code >= 97 && code <= 122) return String.fromCodePoint(small + code - 97);
  if (digit && code >= 48 && code <= 57) return String.fromCodePoint(digit + code - 48);
  return character;
}

class TexReader {
  constructor(text, display) {
    this.tokens = text.match(/\\(?:[a-zA-Z]+\*?|[^])|%[^\n]*|\s+|\d+(?:\.\d+)?|[^]/gu) ?? [];
    this.at = 0;
    this.display = display;
    this.font = '';
    this.depth = 0;
  }

  get token() {
    return this.tokens[this.at];
  }
  skipSpace() {
    while (this.token !== undefined && (/^\s/.test(this.token) || /^%[^]/.test(this.token))) ++this.at;
  }
  next() {
    this.skipSpace();
    return this.tokens[this.at++];
  }
  peek() {
    this.skipSpace();
    return this.token;
  }

  // Until one of `ends`, which is not taken, or the text's end.
  row(ends) {
    const items = [];
    const font = this.font;
    if (++this.depth > kDepthMax) throw new Error('too deep');
    for (let token; (token = this.peek()) !== undefined && !ends.includes(token);) {
      if (token === '}' || token === '\\right' || token === '\\end') throw new Error(`${token} without its begin`);
      if (token === '\\over') {
        ++this.at;
        const above = group(items.splice(0));
        items.push(node('mfrac', {}, above, group(this.row(ends))));
        continue;
      }
      const item = this.scripted();
      if (item) items.push(item);
    }
    --this.depth;
    this.font = font;
    return items;
  }

  // An atom with what stands above and below it.
  scripted() {
    let base = this.atom();
    let below = null, above = null, primes = '';
    for (;;) {
      const token = this.peek();
      if (token === '_' && !below)
        ++this.at, below = this.small();
      else if (token === '^' && !above)
        ++this.at, above = this.small();
      else if (token === "'")
        ++this.at, primes += '′';
      else if (token === '\\limits' || token === '\\nolimits')
        ++this.at, base?.setAttribute('data-limits', token === '\\limits');
      else
        break;
    }
    if (primes) above = above ? node('mrow', {}, node('mo', {}, primes), above) : node('mo', {}, primes);
    if (!below && !above) return base;
    base ??= node('mrow');
    const limits = base.getAttribute('data-limits') === 'true' && (this.display || base.localName.startsWith('munder'));
    if (below && above) return node(limits ? 'munderover' : 'msubsup', {}, base, below, above);
    if (below) return node(limits ? 'munder' : 'msub', {}, base, below);
    return node(limits ? 'mover' : 'msup', {}, base, above);
  }

  // As TeX: limits stand beside their sign in scripts and fractions.
  small(read = () => this.argument()) {
    const {display} = this;
    this.display = false;
    const shown = read();
    this.display = display;
    return shown;
  }

  argument() {
    const token = this.next();
    if (token === undefined) throw new Error('an argument is missing');
    if (token === '{') return group(this.braced());
    if (/^\d{2,}/.test(token)) {  // x^10 is x to the 1, then 0
      this.tokens.splice(this.at, 0, token.slice(1));
      return node('mn', {}, token[0]);
    }
    --this.at;
    return this.atom() ?? node('mrow');
  }
  braced() {
    const items = this.row(['}']);
    if (this.next() !== '}') throw new Error('} is missing');
    return items;
  }
  // The letters of {…}, as they are.
  rawArgument() {
    if (this.next() !== '{') return this.tokens[this.at - 1] ?? '';
    let text = '';
    for (let depth = 1; this.token !== undefined; ++this.at) {
      if (this.token === '{') ++depth;
      if (this.token === '}' && --depth === 0) break;
      text += this.token;
    }
    ++this.at;
    return text;
  }

  atom() {
    const token = this.next();
    if (token === undefined) return null;
    if (token === '{') return group(this.braced());
    if (token[0] === '\\' && token.length > 1) {
      if (++this.depth > kDepthMax) throw new Error('too deep');  // \sqrt\sqrt... needs no braces
      const made = this.command(token.slice(1));
      --this.depth;
      return made;
    }
    if (/^\d/.test(token)) return node('mn', {}, [...token].map((each) => letterOf(each, this.font)).join(''));
    if (/^\p{L}$/u.test(token)) return this.letter(token);
    if (token === '-') return node('mo', {}, '−');
    if (token === '*') return node('mo', {}, '∗');
    if (token === '~') return node('mspace', {width: '0.25em'});
    if (token === '&') return null;
    if ('()[]|/'.includes(token)) return node('mo', {stretchy: 'false'}, token);
    return node('mo', {}, token);
  }

  letter(character) {
    const shown = letterOf(character, this.font);
    return node('mi', this.font === 'normal' || shown !== character ? {mathvariant: 'normal'} : {}, shown);
  }

  command(name) {
    if (kLetters.has(name))
      return node(
          'mi', /^[A-Z]/.test(name) || kLetters.get(name) === '…' ? {mathvariant: 'normal'} : {}, kLetters.get(name));
    if (kOperators.has(name)) return node('mo', {}, kOperators.get(name));
    if (kBig.has(name))
      return node('mo', {'data-limits': 'true', largeop: 'true', movablelimits: 'false'}, kBig.get(name));
    if (kIntegrals.has(name)) return node('mo', {largeop: 'true'}, kIntegrals.get(name));
    if (kLimits.has(name))
      return node(
          'mi', {'data-limits': 'true', mathvariant: 'normal'},
          name.replace(/^(arg|lim)(max|min|sup|inf)$/, '$1\u2009$2'));
    if (kFunctions.has(name)) return node('mi', {mathvariant: 'normal'}, name);
    if (kFences.has(name)) return node('mo', {stretchy: 'false'}, kFences.get(name));
    if (Object.hasOwn(kSpaces, name)) return node('mspace', {width: kSpaces[name]});
    if (kAccents.has(name))
      return node(
          'mover', {accent: 'true'}, this.argument(),
          node('mo', {stretchy: String(/^(wide|over)/.test(name))}, kAccents.get(name)));
    if (kUnder.has(name))
      return node('munder', {'data-limits': 'true'}, this.argument(), node('mo', {stretchy: 'true'}, kUnder.get(name)));
    if (Object.hasOwn(kFonts, name)) return this.inFont(name);
    if (kText.has(name)) return this.textOf(name);
    if (/^(big|Big|bigg|Bigg)[lrm]?$/.test(name))
      return node('mo', {stretchy: 'false', minsize: {b: '1.2em', B: '1.8em'}[name[0]] ?? '1.2em'}, this.fence());
    return this.structure(name);
  }

  structure(name) {
    switch (name) {
      case 'frac':
      case 'tfrac':
        return node('mfrac', {}, this.small(), this.small());
      case 'dfrac':
      case 'cfrac':
        return node('mfrac', {displaystyle: 'true'}, this.argument(), this.argument());
      case 'binom':
      case 'dbinom':
      case 'tbinom':
        return node(
            'mrow', {}, node('mo', {}, '('), node('mfrac', {linethickness: '0'}, this.argument(), this.argument()),
            node('mo', {}, ')'));
      case 'sqrt':
        return this.root();
      case 'left':
        return this.fenced();
      case 'begin':
        return this.environment();
      case 'overset':
      case 'stackrel': {
        const above = this.argument();
        return node('mover', {}, this.argument(), above);
      }
      case 'underset': {
        const below = this.argument();
        return node('munder', {}, this.argument(), below);
      }
      case 'not': {
        const next = this.atom();
        return next ? (next.append('\u0338'), next) : null;
      }
      case 'pmod':
        return node(
            'mrow', {}, node('mspace', {width: '1em'}), node('mo', {}, '('), node('mi', {}, 'mod'),
            node('mspace', {width: '0.3em'}), this.argument(), node('mo', {}, ')'));
      case 'bmod':
        return node('mo', {}, 'mod');
      case 'boxed':
        return node('mrow', {class: 'boxed'}, this.argument());
      case 'phantom':
        return node('mphantom', {}, this.argument());
      case 'color':
      case 'textcolor':
        this.rawArgument();
        return name === 'color' ? null : this.argument();
      case 'tag':
        return node('mrow', {}, node('mspace', {width: '2em'}), node('mtext', {}, `(${this.rawArgument()})`));
      case 'label':
      case 'vspace':
      case 'hspace':
        return this.rawArgument(), null;
      case 'displaystyle':
      case 'textstyle':
      case 'scriptstyle':
      case 'nonumber':
      case 'notag':
      case 'hline':
      case 'middle':
        return null;
      case '\\':
        return node('mspace', {linebreak: 'newline'});
      case '|':
        return node('mo', {stretchy: 'false'}, '‖');
      case '{':
      case '}':
        return node('mo', {stretchy: 'false'}, name);
      case '$':
      case '%':
      case '#':
      case '_':
      case '&':
        return node('mi', {mathvariant: 'normal'}, name);
      default:
        return node('mtext', {class: 'unknown'}, `\\${name}`);
    }
  }

  inFont(name) {
    const before = this.font;
    this.font = kFonts[name];
    if (name === 'bf' || name === 'rm') return null;  // to the end of the group
    const shown = this.argument();
    this.font = before;
    return shown;
  }

  textOf(name) {
    const text = this.rawArgument().replaceAll('\\ ', ' ').replace(/\\([{}$%&_#])/g, '$1');
    if (!name.startsWith('operatorname') && name !== 'mathop')
      return node('mtext', name === 'textbf' ? {class: 'bold'} : {}, text.replace(/^ | $/g, '\u00a0'));
    return node(
        'mi',
        name.endsWith('*') || /max|min/.test(text) ? {'data-limits': 'true', mathvariant: 'normal'} :
                                                     {mathvariant: 'normal'},
        text);
  }

  root() {
    if (this.peek() !== '[') return node('msqrt', {}, this.argument());
    ++this.at;
    const degree = group(this.row([']']));
    this.next();
    return node('mroot', {}, this.argument(), degree);
  }

  fence() {
    const token = this.next() ?? '.';
    const name = token.replace(/^\\/, '');
    return token === '.' ? '' : token === '\\|' ? '‖' : kFences.get(name) ?? name;
  }

  fenced() {
    const open = this.fence();
    const items = this.row(['\\right']);
    if (this.next() !== '\\right') throw new Error('\\right is missing');
    const close = this.fence();
    const mark = (text, form) => (text ? [node('mo', {stretchy: 'true', fence: 'true', form}, text)] : []);
    return node('mrow', {}, ...mark(open, 'prefix'), ...items, ...mark(close, 'postfix'));
  }

  environment() {
    const name = this.rawArgument();
    if (!Object.hasOwn(kTables, name)) throw new Error(`${name}: unknown`);
    if (name === 'array' || name.startsWith('alignat')) this.rawArgument();
    const rows = [[]];
    for (;;) {
      const cell = this.row(['&', '\\\\', '\\cr', '\\end']);
      rows.at(-1).push(cell);
      const end = this.next();
      if (end === undefined) throw new Error(`\\end{${name}} is missing`);
      if (end === '\\end') break;
      if (end !== '&') {
        rows.push([]);
        if (this.peek() === '[')
          while (this.next() !== ']' && this.token !== undefined)
            ;  // \\[2pt]
      }
    }
    this.rawArgument();
    if (rows.at(-1).length === 1 && rows.at(-1)[0].length === 0) rows.pop();
    const [open, close] = kTables[name];
    const wide = ['align', 'align*', 'aligned', 'split', 'gather', 'gathered', 'cases'].includes(name);
    const made = node(
        'mtable', {
          class: kLeftColumns.has(name) ? `columns-${name === 'cases' ? 'left' : 'aligned'}` : 'columns',
          ...(wide && name !== 'cases' ? {displaystyle: 'true'} : {})
        },
        ...rows.map((cells) => node('mtr', {}, ...cells.map((items) => node('mtd', {}, ...items)))));
    const mark = (text) => (text ? [node('mo', {stretchy: 'true', fence: 'true'}, text)] : []);
    return node('mrow', {}, ...mark(open), made, ...mark(close));
  }
}

const group = (items) => (items.length === 1 ? items[0] : node('mrow', {}, ...items));

export function mathNode(text, display) {
  try {
    const reader = new TexReader(text, display);
    const items = reader.row([]);
    const math = node('math', {...(display ? {display: 'block'} : {}), 'aria-label': text.trim()}, ...items);
    if (!display) return math;
    const frame = document.createElement('div');
    frame.className = 'math';
    frame.tabIndex = 0;
    frame.append(math);
    return frame;
  } catch {
    const code = document.createElement('code');
    code.className = 'tex';
    code.textContent = display ? `$$${text}$$` : `$${text}$`;
    return code;
  }
}
