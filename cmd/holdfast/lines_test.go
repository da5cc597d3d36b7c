package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/surface"
)

func TestLineReader(t *testing.T) {
	t.Parallel()
	const limit = 8
	for text, want := range map[string][]string{
		"":                                    nil,
		"\n":                                  {""},
		"one":                                 {"one"},
		"one\ntwo\n":                          {"one", "two"},
		"one\r\n\r\ntwo":                      {"one", "", "two"},
		"12345678\n1":                         {"12345678", "1"},
		"12345678\r\n1":                       {"12345678", "1"},
		"12345678901\nok\n":                   {"LONG", "ok"},
		"ok\n" + strings.Repeat("x", 100_000): {"ok", "LONG"},
	} {
		for _, from := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
			r := &lineReader{from: bufio.NewReaderSize(from, 16), limit: limit}
			if got := readAll(t, r); !slices.Equal(got, want) || r.read != int64(len(text)) {
				t.Errorf("%.20q: %q, %d bytes, want %q", text, got, r.read, want)
			}
		}
	}

	broken := &lineReader{from: bufio.NewReader(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(errors.New("cut")))), limit: limit}
	if line, err := broken.next(); string(line) != "a" || err != nil {
		t.Errorf("before the cut: %q, %v", line, err)
	}
	if _, err := broken.next(); err == nil || err.Error() != "cut" {
		t.Errorf("an incomplete line was accepted: %v", err)
	}
}

func readAll(t *testing.T, r *lineReader) []string {
	t.Helper()
	var lines []string
	for {
		line, err := r.next()
		switch {
		case errors.Is(err, io.EOF):
			return lines
		case errors.Is(err, errLong):
			lines = append(lines, "LONG")
		case err != nil:
			t.Fatal(err)
		default:
			lines = append(lines, string(line))
		}
	}
}

func TestParseTask(t *testing.T) {
	t.Parallel()
	defaults := holdfast.NewTask{Type: "mail", Queue: "slow", Delay: time.Hour, MaxAttempts: 4, Payload: json.RawMessage(`1`), Tags: []string{"ada"}}
	at := time.Date(2030, 1, 31, 9, 0, 0, 0, time.UTC)
	for line, want := range map[string]holdfast.NewTask{
		`{}`:                              defaults,
		`{"type":"","queue":""}`:          defaults,
		` {"payload":null} `:              {Type: "mail", Queue: "slow", Delay: time.Hour, MaxAttempts: 4, Payload: json.RawMessage(`null`), Tags: []string{"ada"}},
		`{"at":"2030-01-31T09:00:00Z"}`:   {Type: "mail", Queue: "slow", At: at, MaxAttempts: 4, Payload: json.RawMessage(`1`), Tags: []string{"ada"}},
		`{"tags":["a","b"]}`:              {Type: "mail", Queue: "slow", Delay: time.Hour, MaxAttempts: 4, Payload: json.RawMessage(`1`), Tags: []string{"a", "b"}},
		`{"tags":[]}`:                     {Type: "mail", Queue: "slow", Delay: time.Hour, MaxAttempts: 4, Payload: json.RawMessage(`1`), Tags: []string{}},
		`{"delay":"0s","max_attempts":1}`: {Type: "mail", Queue: "slow", MaxAttempts: 1, Payload: json.RawMessage(`1`), Tags: []string{"ada"}},
		`{"type":"x","queue":"y","payload":{"a": 1e400},"unique":"u"}`: {Type: "x", Queue: "y", Unique: "u", Delay: time.Hour, MaxAttempts: 4, Payload: json.RawMessage(`{"a": 1e400}`), Tags: []string{"ada"}},
	} {
		got, err := surface.ParseTask([]byte(strings.TrimSpace(line)), defaults)
		if err != nil || !same(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", line, got, err, want)
		}
	}
	for line, want := range map[string]string{
		`null`:                     "not a JSON object",
		`7`:                        "a task must be a JSON object, not a number",
		`{"type":7}`:               "type must be a string, not a number",
		`{"max_attempts":"7"}`:     "max_attempts must be a whole number, not a string",
		`{"tags":"a"}`:             "tags must be a list of strings, not a string",
		`{"tags":["a",7]}`:         "tags must be a list of strings, not a number",
		`{"max_attempts":-1}`:      "max_attempts -1 must be at least 1",
		`{"delay":"soon"}`:         `delay "soon" is not a duration`,
		`{"at":"soon"}`:            `at "soon" is not a time`,
		`{"type":"mail"`:           "unexpected end of JSON",
		`{"type":"mail"}}`:         "unexpected data after the JSON object",
		`{"type":"mail","Kind":1}`: `unknown key "Kind"`,
		`type=mail`:                "not valid JSON",
		"{\"unique\":\"\xff\"}":    "not valid UTF-8",
	} {
		if _, err := surface.ParseTask([]byte(line), defaults); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", line, err, want)
		}
	}
}

func same(a, b holdfast.NewTask) bool {
	return a.Type == b.Type && a.Queue == b.Queue && bytes.Equal(a.Payload, b.Payload) && a.Delay == b.Delay &&
		a.At.Equal(b.At) && a.MaxAttempts == b.MaxAttempts && a.Unique == b.Unique && slices.Equal(a.Tags, b.Tags)
}

// checkLine checks a valid line: if its task is encoded and parsed again, the result is the same task.
func checkLine(t *testing.T, line []byte, task holdfast.NewTask) {
	t.Helper()
	if len(task.Payload) > 0 && !json.Valid(task.Payload) {
		t.Fatalf("accepted payload %q", task.Payload)
	}
	written := map[string]any{"type": task.Type, "queue": task.Queue, "unique": task.Unique, "tags": task.Tags}
	if task.Payload != nil {
		written["payload"] = task.Payload
	}
	if task.Delay > 0 {
		written["delay"] = task.Delay.String()
	}
	if !task.At.IsZero() {
		written["at"] = task.At.Format(time.RFC3339Nano)
	}
	if task.MaxAttempts > 0 {
		written["max_attempts"] = task.MaxAttempts
	}
	var text bytes.Buffer // json.Marshal would change the payload
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(written); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, task.Payload); len(task.Payload) > 0 && err != nil {
		t.Fatal(err)
	}
	want := task
	if want.Payload = compact.Bytes(); len(want.Payload) == 0 {
		want.Payload = nil
	}
	parsed, err := surface.ParseTask(bytes.TrimSpace(text.Bytes()), holdfast.NewTask{})
	if err != nil || !same(parsed, want) {
		t.Fatalf("%s, from %q: %+v, %v; want %+v", text.Bytes(), line, parsed, err, want)
	}
}

// FuzzLines reads whole files: every line is returned exactly once, no line is longer than the limit, and every valid
// task survives an encoding and a second parse.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "{\"type\":\"mail\"}\n{\"type\":\"mail\",\"payload\":{\"a\":[1,2]}}",
		"{\"type\":\"mail\",\"delay\":\"1h\",\"at\":\"2030-01-31T09:00:00Z\"}", "null\r\n[]\r\n\"\"", "\ufeff{\"type\":\"a\"}",
		strings.Repeat("{", 3000), strings.Repeat("x", 200) + "\n{}", "{\"type\":\"\\u0000\"}\n{\"type\":\"a\",\"unique\":\"\\ud800\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const limit = 150
		r := &lineReader{from: bufio.NewReaderSize(bytes.NewReader(data), 16), limit: limit}
		lines := 0
		for {
			line, err := r.next()
			if errors.Is(err, io.EOF) {
				break
			}
			lines++
			if len(line) > limit+2 {
				t.Fatalf("a line of %d bytes", len(line))
			}
			if err != nil || len(line) == 0 {
				continue
			}
			task, err := surface.ParseTask(line, holdfast.NewTask{})
			if err == nil {
				err = task.Validate(limit)
			}
			if err != nil {
				if text := err.Error(); len(text) < 10 || len(text) > 600 || !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\n\x1b") {
					t.Fatalf("%q: bad error text %q", line, text)
				}
				continue
			}
			checkLine(t, line, task)
		}
		want := bytes.Count(data, []byte("\n"))
		if len(data) > 0 && data[len(data)-1] != '\n' {
			want++
		}
		if lines != want || r.read != int64(len(data)) {
			t.Fatalf("%d lines and %d bytes of %d and %d", lines, r.read, want, len(data))
		}
	})
}
