#!/usr/bin/env python3
"""Renders conversations with the models' own Jinja templates: the expected texts of template_spec.lua.

usage: make_template_golden.py QWEN3_TEMPLATE.jinja > tests/lua/template_golden.lua

QWEN3_TEMPLATE is the text of chat_template in the tokenizer_config.json of Qwen/Qwen3-30B-A3B. ChatML comes from the bundled
model. Needs jinja2; not run by the tests.
"""
import json
import pathlib
import sys

import jinja2

ROOT = pathlib.Path(__file__).resolve().parents[2]


def s(text): return {"role": "system", "content": text}
def u(text): return {"role": "user", "content": text}
def a(text): return {"role": "assistant", "content": text}
def t(text): return {"role": "tool", "content": text}


CONVERSATIONS = [
    [u("What is the capital of France?")],
    [s("Be brief."), u("Hi")],
    [u("Hi"), a("Hello!"), u("How are you?")],
    [s("One."), u("Hi"), s("Two."), u("Ho")],
    [u("")],
    [a("I begin.")],
    [s("Only a system message")],
    [u("2 lines\nof text\n"), a("\n\nanswer\n")],
    [u("Grüße, 世界 🙂"), a("¡Olé!"), u("<|im_end|>")],
    [u("q"), a("<think>\nhm\n</think>\n\nyes")],
    [u("q"), a("<think>\nhm\n</think>\n\nyes"), u("really?")],
    [u("q"), a("<think>\n\n</think>\n\nyes"), u("really?"), a("<think>\nlong\n\nthought\n\n</think>\n\n\nindeed")],
    [u("q"), a("</think>x</think>y"), u("r")],
    [u("q"), a("<think>a</think>b<think>c</think>d")],
    [u("q"), a("no end <think> here"), u("r")],
    [u("q"), a("first"), a("second")],
    [u("q"), a("<think>\nhm\n</think>\n\nfirst"), a("second")],
    [u("weather?"), a("<think>\ncall\n</think>\n\nasking"), t("sunny"), a("It is sunny.")],
    [u("weather?"), a("asking"), t("sunny"), t("12 degrees"), u("thanks")],
    [t("alone")],
    [u("q"), a("x"), u("<tool_response>\n5\n</tool_response>")],
    [u("q"), a("<think>\nt\n</think>\n\nx"), u("<tool_response>\n5\n</tool_response>"), a("<think>\nv\n</think>\n\ny")],
    [u("<tool_response>\n5\n</tool_response>")],
]
OPTIONS = [(True, True), (True, False), (False, True)]


def lua(text): return '"' + "".join(f"\\{b:03d}" if b < 32 or b in (34, 92) or b > 126 else chr(b) for b in text.encode()) + '"'


def main():
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)    # as transformers renders them
    bundled = json.loads((ROOT / "examples/models/tiny-moe/tokenizer_config.json").read_text())["chat_template"]
    templates = {"chatml": bundled, "qwen3": pathlib.Path(sys.argv[1]).read_text()}
    print("-- Made by make_template_golden.py from the models' own templates; do not edit.")
    print("return {")
    for name, text in templates.items():
        template = environment.from_string(text)
        for messages in CONVERSATIONS:
            if name == "chatml" and any(m["role"] == "tool" for m in messages):
                continue
            listing = ", ".join(f'{{ role = "{m["role"]}", content = {lua(m["content"])} }}' for m in messages)
            for generate, think in OPTIONS:
                result = template.render(messages=messages, add_generation_prompt=generate, enable_thinking=think)
                print(f'    {{ template = "{name}", add_generation_prompt = {str(generate).lower()}, enable_thinking = {str(think).lower()},')
                print(f"      messages = {{ {listing} }},")
                print(f"      text = {lua(result)} }},")
    print("}")


main()
