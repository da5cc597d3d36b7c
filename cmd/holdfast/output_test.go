package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// JSON allows lone surrogates, but most programs refuse them, so the output has none.
func TestTheOutputHasNoLoneSurrogates(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`"\ud800"`: `"\ufffd"`, `"\uDFFFx"`: `"\ufffdx"`, `"\ud83d\ude00"`: `"\ud83d\ude00"`, `"\ud800\ud83d\ude00"`: `"\ufffd\ud83d\ude00"`,
		`"\ud83d\\ude00"`: `"\ufffd\\ude00"`, `"\\ud800"`: `"\\ud800"`, `"\\\ud800"`: `"\\\ufffd"`, `"\u00e9\n"`: `"\u00e9\n"`, `"\ud83d\u0041"`: `"\ufffd\u0041"`,
		`{"\udc00":1}`: `{"\ufffd":1}`,
	} {
		var out bytes.Buffer
		if err := jsonLines(&out, []json.RawMessage{json.RawMessage(payload)}); err != nil || out.String() != want+"\n" {
			t.Errorf("%s became %s, %v, want %s", payload, out.String(), err, want)
		}
	}
}

// JSON may contain control and format characters that a terminal would obey. On a terminal the output escapes them,
// which does not change the value. Elsewhere the output is the stored text.
func TestJSONOnATerminalHasNoControlCharacters(t *testing.T) {
	t.Parallel()
	const value = "\u007f\u009b31m\u202e\u2028\ue000\U000e0041 é 😀 <b>\n"
	const escaped = `"\u007f\u009b31m\u202e\u2028\ue000\udb40\udc41 é 😀 <b>\n"`
	stored := json.RawMessage(`"` + strings.TrimSuffix(value, "\n") + `\n"`)
	for name, write := range map[string]func(w io.Writer) error{
		"array": func(w io.Writer) error { return jsonArray(w, []any{value, stored}) },
		"lines": func(w io.Writer) error { return jsonLines(w, []any{value, stored}) },
	} {
		terminal, file := &frame{terminal: true}, &bytes.Buffer{}
		if err := errors.Join(write(terminal), write(file)); err != nil {
			t.Fatal(err)
		}
		if got := terminal.String(); strings.Count(got, escaped) != 2 {
			t.Errorf("%s: on a terminal: %s", name, got)
		}
		if got := file.String(); !strings.Contains(got, string(stored)) {
			t.Errorf("%s: in a file: %s", name, got)
		}
		var got string
		if err := json.Unmarshal([]byte(escaped), &got); err != nil || got != value {
			t.Errorf("%s became %q: %v", escaped, got, err)
		}
	}
}

func TestStuckHandlersAreCounted(t *testing.T) {
	t.Parallel()
	var report store.WorkerReport
	for _, want := range []string{"", "1", "1, 4 abandoned"} {
		w := surface.WorkerOf(store.Worker{Report: report})
		if got := stuckHandlers(w); got != want {
			t.Errorf("%+v: %q, want %q", report, got, want)
		}
		report.Abandoned = 4 * len(report.Stuck)
		report.Stuck = []store.StuckTask{{Task: 7, Attempt: 2, For: 90 * time.Second}}
	}
	text, err := json.Marshal(surface.WorkerOf(store.Worker{Report: report}))
	if want := `"stuck":[{"task":"7","attempt":2,"for":"1m30s"}],"abandoned":4`; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
}
