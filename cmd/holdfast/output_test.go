package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
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

func TestStuckHandlersAreCounted(t *testing.T) {
	t.Parallel()
	var report store.WorkerReport
	for _, want := range []string{"", "1", "1, 4 abandoned"} {
		w := surface.NewWorker(store.Worker{Report: report})
		if got := stuckHandlers(w); got != want {
			t.Errorf("%+v: %q, want %q", report, got, want)
		}
		report.Abandoned = 4 * len(report.Stuck)
		report.Stuck = []store.StuckTask{{Task: 7, Attempt: 2, For: 90 * time.Second}}
	}
	text, err := json.Marshal(surface.NewWorker(store.Worker{Report: report}))
	if want := `"stuck":[{"task":"7","attempt":2,"for":"1m30s"}],"abandoned":4`; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
}
