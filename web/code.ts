// Code in colours, for the languages that people talk about most. Loaded when the first code is there.

import hljs from "highlight.js/lib/highlight";
import armasm from "highlight.js/lib/languages/armasm";
import bash from "highlight.js/lib/languages/bash";
import cmake from "highlight.js/lib/languages/cmake";
import cpp from "highlight.js/lib/languages/cpp";
import cs from "highlight.js/lib/languages/cs";
import css from "highlight.js/lib/languages/css";
import dart from "highlight.js/lib/languages/dart";
import diff from "highlight.js/lib/languages/diff";
import dockerfile from "highlight.js/lib/languages/dockerfile";
import elixir from "highlight.js/lib/languages/elixir";
import erlang from "highlight.js/lib/languages/erlang";
import fortran from "highlight.js/lib/languages/fortran";
import glsl from "highlight.js/lib/languages/glsl";
import go from "highlight.js/lib/languages/go";
import haskell from "highlight.js/lib/languages/haskell";
import http from "highlight.js/lib/languages/http";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import julia from "highlight.js/lib/languages/julia";
import kotlin from "highlight.js/lib/languages/kotlin";
import lisp from "highlight.js/lib/languages/lisp";
import llvm from "highlight.js/lib/languages/llvm";
import lua from "highlight.js/lib/languages/lua";
import makefile from "highlight.js/lib/languages/makefile";
import markdown from "highlight.js/lib/languages/markdown";
import matlab from "highlight.js/lib/languages/matlab";
import nginx from "highlight.js/lib/languages/nginx";
import objectivec from "highlight.js/lib/languages/objectivec";
import ocaml from "highlight.js/lib/languages/ocaml";
import perl from "highlight.js/lib/languages/perl";
import php from "highlight.js/lib/languages/php";
import protobuf from "highlight.js/lib/languages/protobuf";
import powershell from "highlight.js/lib/languages/powershell";
import python from "highlight.js/lib/languages/python";
import r from "highlight.js/lib/languages/r";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import scala from "highlight.js/lib/languages/scala";
import scheme from "highlight.js/lib/languages/scheme";
import shell from "highlight.js/lib/languages/shell";
import sql from "highlight.js/lib/languages/sql";
import swift from "highlight.js/lib/languages/swift";
import tex from "highlight.js/lib/languages/tex";
import typescript from "highlight.js/lib/languages/typescript";
import verilog from "highlight.js/lib/languages/verilog";
import vim from "highlight.js/lib/languages/vim";
import x86asm from "highlight.js/lib/languages/x86asm";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { PROSE, safeFragment } from "./safe";

const languages = { armasm, bash, cmake, cpp, cs, css, dart, diff, dockerfile, elixir, erlang, fortran, glsl, go, haskell, http, ini, java, javascript, json, julia, kotlin, lisp, llvm, lua, makefile, markdown, matlab, nginx, objectivec, ocaml, perl, php, powershell, protobuf, python, r, ruby, rust, scala, scheme, shell, sql, swift, tex, typescript, verilog, vim, x86asm, xml, yaml };
hljs.configure({ hideUpgradeWarningAcceptNoSupportOrSecurityUpdates: true }); // it would tell every reader of the console
for (const [name, language] of Object.entries(languages)) {
    hljs.registerLanguage(name, language);
}

// Names that models write, of languages that are close enough.
const aliases = new Map(
    Object.entries({ bash: "fish", shell: "terminal shellsession", cpp: "cuda cu opencl metal", css: "scss less", glsl: "hlsl wgsl", ini: "conf properties", java: "groovy gradle", javascript: "node", json: "jsonc json5 jsonl", lisp: "cl elisp clojure clj", makefile: "make", objectivec: "objective-c", python: "python3 py3", sql: "postgresql mysql sqlite", typescript: "tsx", x86asm: "asm nasm assembly", xml: "htm vue svelte" }).flatMap(([language, names]) => names.split(" ").map((name): [string, string] => [name, language])),
);

const LONGEST = 20_000; // characters: it works while nothing else can

export function highlight(code: HTMLElement): void {
    const written = (code.dataset.language ?? "").toLowerCase();
    const language = aliases.get(written) ?? written;
    const text = code.textContent ?? "";
    if (code.dataset.drawn || !hljs.getLanguage(language) || text.length > LONGEST) {
        return;
    }
    code.dataset.drawn = "yes";
    code.replaceChildren(safeFragment(hljs.highlight(language, text, true).value, PROSE));
}
