"""What is wrong with an answer, and with memory."""

# Outcomes of a start that are red, the worst first.
RED = ("crash", "hang", "wrong", "answer", "exit", "log", "memory", "pressure", "driver")

NEAR = 0.1  # of ln p without --batch-invariant
NEAR_OF_STATES = 0.25  # a rounding goes on with a state to all that follows
NEAR_OF_EXPERTS = 0.5  # a rounding that makes another of two nearly equal experts the last of a token's
NEAR_OF_FP8 = 0.6  # a rounding makes another of two 8-bit numbers, an eighth apart (0.47 the most of 11 million tokens); with states twice that
GROWTH_MIB = 16.0  # of a memory over a third of a long run: more is a leak of 1 MiB in 10 s


class Check:
    def __init__(self, near=NEAR):
        self.tokens, self.worst, self.problem, self.near = 0, 0.0, "", near


def compare(answer, alone, exact, near_max=NEAR):
    """An answer against the same request's alone. Lists of choices (soak_requests.choices_of)."""
    check = Check(near_max)
    if len(answer) != len(alone):
        check.problem = f"{len(answer)} choices, alone {len(alone)}"
    for index, (ours, theirs) in enumerate(zip(answer, alone)):
        problem = same(ours, theirs, check) if exact else near(ours, theirs, check)
        if problem and not check.problem:
            check.problem = f"choice {index}: {problem}"
    return check


def same(ours, theirs, check):
    check.tokens += len(ours["tokens"])
    for part in ("tokens", "chosen", "tops", "finish"):
        if ours[part] != theirs[part]:
            return f"{part} differ: {first_difference(ours[part], theirs[part])}"
    return ""


def first_difference(ours, theirs):
    if not isinstance(ours, list):
        return f"{ours}, alone {theirs}"
    for place, (a, b) in enumerate(zip(ours, theirs)):
        if a != b:
            return f"at {place}: {a}, alone {b}"
    return f"{len(ours)} of them, alone {len(theirs)}"


def near(ours, theirs, check):
    """Up to the first token that differs, and the distribution from which that was drawn."""
    echoed = len(ours["chosen"]) - len(ours["tokens"])
    if echoed != len(theirs["chosen"]) - len(theirs["tokens"]):
        return f"{echoed} tokens are scored of the prompt"
    for place in range(min(len(ours["chosen"]), len(theirs["chosen"]))):
        a, b = ours["tops"][place], theirs["tops"][place]
        if a is None or b is None:  # the prompt's first token
            continue
        check.tokens += 1
        problem = distributions_differ(a, b, check) or distributions_differ(b, a, check)
        if problem:
            return f"position {place}: {problem}"
        at = place - echoed
        if at >= 0 and ours["tokens"][at] != theirs["tokens"][at]:
            return ""  # what follows has another context
    if len(ours["tokens"]) != len(theirs["tokens"]) or ours["finish"] != theirs["finish"]:
        return f"{len(ours['tokens'])} tokens, {ours['finish']}; alone {len(theirs['tokens'])}, {theirs['finish']}"
    return ""


def distributions_differ(a, b, check):
    """`a`, `b`: {token: ln p} of the best, and of a drawn one that may stand far behind them."""
    ranked = sorted(b.values(), reverse=True)
    least = ranked[-2] if len(ranked) > 1 else ranked[-1]  # the last may be the drawn one
    for token, value in a.items():
        difference = abs(value - b[token]) if token in b else max(0.0, value - least)
        check.worst = max(check.worst, difference)
        if not difference <= check.near:
            return f"ln p of {token} is {value:.4f}, the other's {b.get(token, f'at most {least:.4f}')}"
    return ""


def growth(samples):
    """Memory over the last third of a run: [what grew]."""
    third = samples[2 * len(samples) // 3 :]
    problems = []
    if len(third) < 6:
        return ["too few samples of memory"]
    part = len(third) // 3
    for name in third[0]:
        values = [sample[name] for sample in third if sample[name] is not None]
        if name == "seconds" or len(values) < len(third):
            continue
        begin, end = sum(values[:part]) / part, sum(values[-part:]) / part
        if end - begin > GROWTH_MIB:
            problems.append(f"{name} grew by {end - begin:.1f} MiB in the last third, from {begin:.1f}")
    return problems


def grown(before, after):
    """Of what a server's mappings hold (Server.mappings()), what became more, the most first."""
    more = {kind: after[kind] - before.get(kind, 0) for kind in after}
    largest = sorted(more, key=more.get, reverse=True)[:4]
    return ", ".join(f"{kind} {more[kind]:+.0f} MiB" for kind in largest if more[kind] >= 1)


def thirds(samples):
    """Memory at the beginning, after one and two thirds, and at the end, MiB."""
    if not samples:
        return {}
    places = [0, len(samples) // 3, 2 * len(samples) // 3, len(samples) - 1]
    return {name: [round(samples[p][name], 1) for p in places]
            for name in samples[0] if name != "seconds" and samples[0][name] is not None}  # fmt: skip
