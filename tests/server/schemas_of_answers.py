"""JSON schemas of rising difficulty, from one value to what nests, refers to itself and bounds everything."""


def thing(required=None, **properties):
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required,
            "additionalProperties": False}  # fmt: skip


def some(items, least=0, most=4):
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


TEXT = {"type": "string", "maxLength": 12}
WORD = {"type": "string", "pattern": "^[a-z]{2,8}$"}
WHOLE = {"type": "integer", "minimum": -9, "maximum": 99}
PART = {"type": "number", "minimum": 0, "maximum": 1}
YES = {"type": "boolean"}
NONE = {"type": "null"}
POINT = thing(x=WHOLE, y=WHOLE)
NAMED = {"anyOf": [thing(kind={"const": "circle"}, radius=PART), thing(kind={"const": "box"}, width=WHOLE, height=WHOLE)]}

# Single values.
VALUES = [
    YES, NONE, WHOLE, PART, TEXT, WORD,
    {"enum": ["red", "green", "blue"]}, {"const": {"a": [1, None, "b"]}}, {"enum": [1, "1", True, None, [], {}]},
    {"type": ["integer", "null"], "minimum": 5, "maximum": 7}, {"type": "integer", "minimum": 1000, "maximum": 1003},
    {"type": "integer", "exclusiveMinimum": -3, "exclusiveMaximum": 3}, {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 2},
    {"type": "string", "minLength": 3, "maxLength": 3}, {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"},
    {"type": "string", "pattern": "^(GET|PUT|POST) /[a-z]{1,5}(/[0-9]{1,3})?$"}, {"type": "string", "pattern": "^[^a-z]{1,4}$"},
    *({"type": "string", "format": name} for name in ("date", "time", "date-time", "uuid", "ipv4")),
]  # fmt: skip

# Objects and lists of them.
THINGS = [
    thing(), thing(a=YES), POINT, thing(name=TEXT, age=WHOLE, tags=some(WORD)), thing([], a=WHOLE, b=WHOLE, c=WHOLE),
    thing(["b"], a=WHOLE, b=YES, c=TEXT), {**thing(a=YES), "additionalProperties": WHOLE}, some(WHOLE), some(YES, 2, 2), some(TEXT, 1),
    some(some(WHOLE, 1, 2), 1, 2), some(POINT, 1, 2), thing(path=some(POINT, 2, 3), closed=YES),
    {"type": "array", "prefixItems": [WORD, WHOLE], "items": YES, "minItems": 2, "maxItems": 4},
    thing(id={"type": "string", "format": "uuid"}, when={"type": "string", "format": "date-time"}),
    thing(a=thing(b=thing(c=thing(d=WHOLE)))), thing(**{"a key of words": YES, "with \"quotes\" \\ and /": WHOLE, "ünïcode €": NONE}),
    thing(**{f"number_of_the_{ordinal}_measurement": WHOLE for ordinal in ("first", "second", "third", "fourth", "fifth")}),
    thing(matrix=some(some(PART, 2, 2), 2, 2)), thing(sizes={"type": "array", "items": {"enum": ["S", "M", "L"]}, "minItems": 1, "maxItems": 3}),
]  # fmt: skip

# Choices, references, what is put together.
TREE = {"$ref": "#/$defs/node", "$defs": {"node": thing(["value"], value=WHOLE, children=some({"$ref": "#/$defs/node"}, 0, 2))}}
LIST = {"$ref": "#/$defs/cell", "$defs": {"cell": {"anyOf": [NONE, thing(head=WORD, tail={"$ref": "#/$defs/cell"})]}}}
MIXED = [
    {"anyOf": [WHOLE, WORD, NONE]}, {"oneOf": [thing(kind={"const": "a"}, n=WHOLE), thing(kind={"const": "b"}, t=WORD)]}, NAMED, some(NAMED, 1, 2),
    thing(shape=NAMED, colour={"anyOf": [{"enum": ["red", "blue"]}, some({"type": "integer", "minimum": 0, "maximum": 255}, 3, 3)]}),
    {"allOf": [{"type": "object", "properties": {"a": WHOLE}, "required": ["a"]}, {"type": "object", "properties": {"b": YES}, "required": ["b"]}]},
    {"$ref": "#/$defs/p", "$defs": {"p": POINT}}, thing(start={"$ref": "#/$defs/p"}, end={"$ref": "#/$defs/p"}) | {"$defs": {"p": POINT}},
    TREE, LIST, thing(result={"anyOf": [thing(ok={"const": True}, value=PART), thing(ok={"const": False}, error=TEXT)]}),
    some({"anyOf": [WHOLE, some({"anyOf": [YES, some(NONE, 1, 1)]}, 1, 2)]}, 1, 3),
    thing(["user", "items"], user=thing(["name"], name=WORD, mail={"type": "string", "format": "email"}), note=TEXT,
          items=some(thing(["sku", "count"], sku={"type": "string", "pattern": "^[A-Z]{2}[0-9]{3}$"}, count={"type": "integer", "minimum": 1, "maximum": 9},
                           price=PART), 1, 2)),
    thing(function={"enum": ["add", "search"]}, arguments={"anyOf": [thing(a=WHOLE, b=WHOLE), thing(query=TEXT, limit={"enum": [5, 10]})]}),
    thing(version={"const": "1.0"}, settings={**thing([], debug=YES), "additionalProperties": {"type": ["boolean", "null"]}}),
    thing(days={"type": "array", "prefixItems": [{"type": "string", "format": "date"}], "items": {"type": "string", "format": "date"}, "minItems": 1, "maxItems": 2},
          hours=some({"type": "string", "format": "time"}, 1, 2)),
    thing(network=thing(address={"type": "string", "format": "ipv4"}, ports=some({"type": "integer", "minimum": 1, "maximum": 65535}, 1, 3))),
    thing(a={"type": ["string", "integer", "null"], "maxLength": 4, "minimum": 3, "maximum": 4}, b={"type": ["array", "boolean"], "items": NONE, "maxItems": 2}),
]  # fmt: skip

SCHEMAS = VALUES + THINGS + MIXED
