package main

import (
	"bytes"
	"encoding/json"
	"testing"
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
