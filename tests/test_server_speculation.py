#!/usr/bin/env python3
"""test_server_speculation.py BUILD [NAME ...]: a server that guesses tokens answers what one that does not answers, in every dialect.

Speaks TAP. Each request goes to both servers; guesses come from `prediction` and from what the same client was answered before.
"""
import http.client
import json
import os
import subprocess
import sys
import threading

import test_server
from test_server import PEBBLE, Server, path, until

STORY = [{"role": "user", "content": "Tell me a story about a fox."}]
# Nothing in it occurs twice, so that an answer cannot be guessed from itself.
WORDS = ("Alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima mike november oscar papa quebec romeo sierra tango uniform "
         "victor whiskey xray yankee zulu zero nine seven.")
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "days": {"type": "array", "items": {"type": "integer"}, "maxItems": 4}},
          "required": ["name", "days"], "additionalProperties": False}
# What differs from answer to answer, or says how it was made.
OWN = {"id", "item_id", "response_id", "created", "created_at", "completed_at", "timings", "cached_tokens", "cache_read_input_tokens", "input_tokens",
       "accepted_prediction_tokens", "rejected_prediction_tokens", "total_duration", "load_duration", "prompt_eval_duration", "eval_duration",
       "prompt_eval_count", "logprob_id", "system_fingerprint", "generation_settings"}
servers = {}


def plain(value):
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in OWN}
    return [plain(v) for v in value] if isinstance(value, list) else value


def off():
    return servers["off"]


def on():
    return servers["auto"]


def pieces(server, where, body):
    """The events of a stream, or its lines."""
    code, text, _ = server.ask("POST", where, {**body, "stream": True})
    assert code == 200, (code, text)
    lines = [line[6:] if line.startswith("data: ") else line for line in text.split("\n") if line and not line.startswith((":", "event:"))]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def metric(server, name):
    _, text, _ = server.ask("GET", "/metrics")
    values = [line.split()[-1] for line in text.split("\n") if line.startswith(name + "{")]
    return float(values[0]) if values else None


def same(where, body, streamed=True, times=2):
    """Asked again it is guessed from the answer before."""
    expected = plain(off().post(where, {**body, "stream": False}))
    for _ in range(times):
        got = plain(on().post(where, {**body, "stream": False}))
        assert got == expected, (body, got, expected)
    if streamed:
        expected = plain(pieces(off(), where, body))
        for _ in range(times):
            got = plain(pieces(on(), where, body))
            assert got == expected, (body, got, expected)


def chat(**more):
    return {"messages": STORY, "temperature": 0, "max_tokens": 48, "seed": 3, **more}


# ---- The same answers


def four_dialects_answer_the_same():
    # Of events between requests, those of the same names come one after the other; no text may depend on what was guessed.
    same("/v1/chat/completions", chat())
    same("/v1/completions", {"prompt": "Once upon a time there was a fox", "max_tokens": 48, "temperature": 0})
    same("/completion", {"prompt": "Once upon a time there was a fox", "n_predict": 48, "temperature": 0, "return_tokens": True})
    same("/v1/responses", {"input": "Tell me a story about a fox.", "max_output_tokens": 48, "temperature": 0, "store": False})
    same("/v1/messages", {"messages": STORY, "max_tokens": 48, "temperature": 0})
    same("/api/chat", {"messages": STORY, "options": {"num_predict": 48, "temperature": 0}})
    same("/api/generate", {"prompt": "Tell me a story about a fox.", "options": {"num_predict": 48, "temperature": 0}})
    assert metric(on(), "moraine_draft_tokens_total") > 0 and metric(on(), "moraine_draft_tokens_accepted_total") > 0
    assert metric(off(), "moraine_draft_tokens_total") is None


def every_way_of_choosing_is_the_same():
    for more in ({"temperature": 1}, {"temperature": 0.8, "repeat_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.2},
                 {"stop": [" the", "fox "]}, {"n": 3, "temperature": 1}, {"logprobs": True, "top_logprobs": 3}, {"mirostat": 2}, {"ignore_eos": True},
                 {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}},
                 {"grammar": 'root ::= ("the fox and the hen " | "a hat ")+ "."'}, {"logit_bias": {"32": 3}}):
        same("/v1/chat/completions", chat(**more), streamed="n" not in more, times=1)


def a_stream_has_one_event_per_token():
    body = chat(logprobs=True, top_logprobs=2, max_tokens=64)
    text = off().post("/v1/chat/completions", body)["choices"][0]["message"]["content"]
    body["prediction"] = {"type": "content", "content": text}
    counts = [[len(((c.get("logprobs") or {}).get("content")) or []) for chunk in pieces(s, "/v1/chat/completions", body) for c in chunk["choices"]]
              for s in (off(), on())]
    assert counts[0] == counts[1], counts
    answer = on().post("/v1/chat/completions", body)
    assert answer["usage"]["completion_tokens"] == len(answer["choices"][0]["logprobs"]["content"])


def clients_together_are_answered_the_same():
    bodies = [chat(seed=i, temperature=i % 2, max_tokens=64, **({"logprobs": True} if i == 2 else {}), **({"stop": [" and"]} if i == 5 else {}),
                   **({"grammar": 'root ::= ("the fox " | "the hen ")+'} if i == 6 else {})) for i in range(8)]
    expected = [plain(off().post("/v1/chat/completions", b)) for b in bodies]
    for b, e in zip(bodies, expected):
        b["prediction"] = {"type": "content", "content": e["choices"][0]["message"]["content"]}
    before = metric(on(), "moraine_draft_tokens_total") or 0
    for _ in range(3):
        got = [None] * 8

        def ask(i):
            got[i] = plain(on().post("/v1/chat/completions", bodies[i]))

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert got == expected, (got, expected)
    assert metric(on(), "moraine_draft_tokens_total") >= before


def who_leaves_changes_nothing():
    expected = plain(off().post("/v1/chat/completions", chat()))
    for count in (1, 2, 5, 9):
        connection = http.client.HTTPConnection("127.0.0.1", on().port, timeout=60)
        connection.request("POST", "/v1/chat/completions", json.dumps(chat(stream=True, max_tokens=400, ignore_eos=True)))
        answer = connection.getresponse()
        for _ in range(2 * count):
            answer.readline()
        connection.close()
        assert plain(on().post("/v1/chat/completions", chat())) == expected
    assert until(lambda: on().get("/v1/moraine/status")["models"][0]["engine"]["running"] == 0)


# ---- Requests and reports


def predictions_are_counted():
    answer = off().post("/v1/chat/completions", chat(max_tokens=96, ignore_eos=True))
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    assert "draft_n" not in answer["timings"]
    text = answer["choices"][0]["message"]["content"]
    with Server("--model", PEBBLE, "--ctx", "1024", "--threads", "2", "--speculate", "auto", "--draft-max", "16") as s:
        for content in (text, [{"type": "text", "text": text[:40]}, {"type": "text", "text": text[40:]}]):
            got = s.post("/v1/chat/completions", chat(max_tokens=96, ignore_eos=True, prediction={"type": "content", "content": content}))
            assert got["choices"] == answer["choices"]
            details, timings = got["usage"]["completion_tokens_details"], got["timings"]
            assert got["usage"]["completion_tokens"] == answer["usage"]["completion_tokens"] == timings["predicted_n"]
            assert details["accepted_prediction_tokens"] > 0 and details["rejected_prediction_tokens"] >= 0, details
            assert timings["draft_n"] >= timings["draft_n_accepted"] >= details["accepted_prediction_tokens"]
        status = s.get("/v1/moraine/status")["models"][0]["speculation"]
        assert status["draft_max"] == 16 and 0 < status["accepted"] <= status["drafted"] and status["tokens_per_step"] > 1 and status["gain"] > 0, status
        assert metric(s, "moraine_draft_tokens_total") == status["drafted"] and metric(s, "moraine_draft_gain") > 0
        # Off for one request; and the fields are told.
        for more in ({"speculative.n_max": 0}, {"speculative.type": "none"}):
            got = s.post("/v1/chat/completions", chat(prediction={"type": "content", "content": text}, **more))
            assert "draft_n" not in got["timings"] and got["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] == 0
        settings = s.post("/completion", {"prompt": "a fox", "n_predict": 2, "speculative.n_max": 3, "speculative.n_min": 9, "speculative.p_min": 0.5})["generation_settings"]
        assert (settings["speculative.n_max"], settings["speculative.n_min"], settings["speculative.p_min"]) == (3, 3, 0.5), settings
    assert off().get("/v1/moraine/status")["models"][0]["speculation"] is None


def scripted(name, text):
    model = path(name)
    program = os.path.join(os.path.abspath(sys.argv[1]), "tests", "make_scripted_model")
    subprocess.run([program, model, "@tests/data/server/hermes.jinja", text], check=True, stdout=subprocess.DEVNULL)
    return model


SAY = {"messages": [{"role": "user", "content": "say"}], "temperature": 0}


def guesses_behind_a_stop_string_are_not_counted():
    letters = "".join(map(chr, (*range(48, 58), *range(65, 91), *range(97, 123))))
    text = (letters + " ") * 4
    drafted = 0
    with Server("--model", scripted("stops.gguf", text), "--speculate", "auto", "--ctx", "512", "--threads", "2") as s:
        for i in range(40):  # how much is guessed depends on times
            got = s.post("/v1/chat/completions", {**SAY, "stop": " ", "n": 1 + i % 2, "prediction": {"type": "content", "content": text}})
            usage, timings = got["usage"], got["timings"]
            details, accepted = usage["completion_tokens_details"], timings.get("draft_n_accepted", 0)
            assert all(c["message"]["content"] == letters for c in got["choices"]), got
            drafted += timings.get("draft_n", 0)
            assert accepted < usage["completion_tokens"] and details["accepted_prediction_tokens"] <= accepted <= timings.get("draft_n", 0), (usage, timings)
            assert details["rejected_prediction_tokens"] >= 0, details
    assert drafted > 0


def tokens_before_a_failure_are_sent():
    model = scripted("fails.gguf", WORDS)
    # Behind the first words the grammar allows what the bias excludes.
    allowed, excluded = WORDS[:WORDS.index(" tango")], "ZYXWV"
    body = {**SAY, "grammar": 'root ::= "%s" [%s]' % (allowed, excluded), "logit_bias": [[letter, False] for letter in excluded], "stream": True,
            "prediction": {"type": "content", "content": WORDS}}
    with Server("--model", model, "--speculate", "auto", "--ctx", "512", "--threads", "2") as s:
        for _ in range(12):  # the first time, masks are made for each token and come late
            events = pieces(s, "/v1/chat/completions", body)
            said = "".join(c["delta"].get("content") or "" for e in events[:-1] for c in e["choices"])
            assert "error" in events[-1] and said == allowed, (said, events[-1])


def what_is_wrong_is_named():
    for server in (off(), on()):
        for field, body in (("prediction", {"prediction": "text"}), ("prediction.type", {"prediction": {"type": "patch", "content": "x"}}),
                            ("prediction.content", {"prediction": {"type": "content"}}), ("prediction.content", {"prediction": {"type": "content", "content": 5}}),
                            ("prediction.content[0].type", {"prediction": {"type": "content", "content": [{"type": "image_url"}]}}),
                            ("prediction.content[0].text", {"prediction": {"type": "content", "content": [{"type": "text"}]}}),
                            ("speculative.n_max", {"speculative.n_max": "many"}), ("speculative.n_min", {"speculative.n_min": -1}),
                            ("speculative.p_min", {"speculative.p_min": 2}), ("speculative.type", {"speculative.type": "magic"})):
            error = server.post("/v1/chat/completions", chat(**body), status=400)["error"]
            assert error["param"] == field, (field, error)
        for body in ({"prediction": None}, {"prediction": {"type": "content", "content": ""}}, {"speculative.type": "ngram_simple,draft"}):
            server.post("/v1/chat/completions", chat(max_tokens=2, **body))


def a_client_is_guessed_from_its_own_answers():
    model = scripted("words.gguf", WORDS)
    keys = path("talkers")
    with open(keys, "w") as f:
        f.write("of-anna\nof-bert name=team\nof-carl name=team\n")
    # A new server each: until steps are measured, a long match is always tried.
    for first, other, again in (("of-anna", "of-bert", "of-anna"), ("of-bert", "of-anna", "of-carl")):  # keys of one name are one client
        with Server("--model", model, "--speculate", "auto", "--ctx", "512", "--threads", "2", "--api-key-file", keys, "--share-prefixes") as s:
            drafts = []
            for key in (first, other, again):
                answer = s.post("/v1/chat/completions", SAY, headers={"Authorization": "Bearer " + key})
                assert answer["choices"][0]["message"]["content"] == WORDS, answer
                drafts.append(answer["timings"].get("draft_n", 0))
            assert drafts[:2] == [0, 0] and drafts[2] > 0, drafts


def clients_are_answered_the_same_with(model, *options):
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "oracle")
    model, options = os.path.join(folder, model), [os.path.join(folder, o) if o.endswith(".gguf") else o for o in options]
    bodies = [{"prompt": list(range(3 + i, 40)), "n_predict": 90, "temperature": i % 2, "seed": i, "ignore_eos": True, "n_probs": 1} for i in range(8)]
    answers = []
    for more in ((), options):
        with Server("--model", model, *more, "--ctx", "256", "--parallel", "8", "--threads", "2", "--device", "none") as s:
            got = [None] * len(bodies)

            def ask(i):
                got[i] = plain(s.post("/completion", bodies[i]))
            threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            several = plain(s.post("/v1/completions", {"prompt": "a b c", "n": 3, "temperature": 1, "seed": 5, "max_tokens": 80, "ignore_eos": True}))
            s.post("/completion", {**bodies[0], "n_predict": 150})  # alone long enough that a guess is tried
            assert not more or metric(s, "moraine_draft_tokens_total") > 0
            answers.append((got, several))
    assert answers[0] == answers[1], answers


def clients_of_a_model_with_an_mtp_head_are_answered_the_same():
    clients_are_answered_the_same_with("qwen35moe-mtp.gguf", "--speculate", "mtp")


def clients_of_a_model_with_a_draft_model_are_answered_the_same():
    clients_are_answered_the_same_with("qwen3moe.gguf", "--speculate", "draft", "--draft-model", "qwen3.gguf")


TESTS = [four_dialects_answer_the_same, every_way_of_choosing_is_the_same, a_stream_has_one_event_per_token, clients_together_are_answered_the_same,
         who_leaves_changes_nothing, predictions_are_counted, guesses_behind_a_stop_string_are_not_counted,
         tokens_before_a_failure_are_sent, what_is_wrong_is_named, a_client_is_guessed_from_its_own_answers, clients_of_a_model_with_an_mtp_head_are_answered_the_same,
         clients_of_a_model_with_a_draft_model_are_answered_the_same]

if __name__ == "__main__":
    with Server("--model", PEBBLE, "--ctx", "1024", "--parallel", "8", "--threads", "2") as first, \
            Server("--model", PEBBLE, "--ctx", "1024", "--parallel", "8", "--threads", "2", "--speculate", "auto") as second:
        servers.update({"off": first, "auto": second})
        status = test_server.run(TESTS)
    sys.exit(status)
