"""What a scripted model says: a round of two calls of tools, one of them again, and an answer, with thoughts."""

CALLS = """<think>
Two questions.
</think>

I look it up.
<tool_call>
{"name": "get_weather", "arguments": {"city": "Köln"}}
</tool_call>
<tool_call>
{"name": "get_time", "arguments": {"city": "Köln \\"am Rhein\\""}}
</tool_call>"""
AGAIN = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
ANSWER = "<think>\nNow I know.\n</think>\n\n18 degrees at 12:00."
