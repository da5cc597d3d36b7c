package eventstream_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/internal/eventstream"
)

// event is what a browser dispatches.
type event struct{ name, data string }

// read reads a stream by the rules of the HTML standard, apart from this package: a line ends with CR, LF or CRLF, and
// an empty line ends an event.
func read(text string) (events []event) {
	var name string
	var data []string
	for _, line := range regexp.MustCompile("\r\n|\r|\n").Split(text, -1) {
		if line == "" {
			if data != nil {
				events = append(events, event{name, strings.Join(data, "\n")})
			}
			name, data = "", nil
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimPrefix(value, " "); field {
		case "event":
			name = value
		case "data":
			data = append(data, value)
		}
	}
	return events
}

// sent returns what the writer sends for one event with the data, between two others.
func sent(t *testing.T, data string) []event {
	t.Helper()
	rec := httptest.NewRecorder()
	w, err := eventstream.Begin(rec)
	if err != nil {
		t.Fatal(err)
	}
	for _, send := range []func() error{
		func() error { return w.Send("first", "") }, w.Beat, func() error { return w.Send("main", data) }, func() error { return w.Send("last", "x") },
	} {
		if err := send(); err != nil {
			t.Fatal(err)
		}
	}
	if kind := rec.Header().Get("Content-Type"); rec.Code != http.StatusOK || kind != "text/event-stream" {
		t.Errorf("%d %q", rec.Code, kind)
	}
	return read(rec.Body.String())
}

// check checks that a client receives one event with the data, and nothing else.
func check(t *testing.T, data string) {
	t.Helper()
	want := []event{{"first", ""}, {"main", regexp.MustCompile("\r\n|\r").ReplaceAllString(data, "\n")}, {"last", "x"}}
	got := sent(t, data)
	if len(got) != len(want) {
		t.Fatalf("%q is received as %q", data, got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%q is received as %q, want %q", data, got[i], want[i])
		}
	}
}

var hostile = []string{
	"", "x", "a\nb", "a\rb", "a\r\nb", "\r", "\n", "\r\n", "\n\r", "\r\r\n\n", "end\n", " a\n b", ":", "data: x",
	"oops\r\revent: end\rdata: forged\r\rrest", "oops\n\nevent: end\ndata: forged\n\n", "a\r\nid: 7\r\nretry: 1", "x\x00\revent: end",
	"line\u2028event: end\u2029data: x\u0085y\v\f", "\ufeffevent: end", "\xff\r\xfe",
}

func TestDataBeginsNoOtherEvent(t *testing.T) {
	t.Parallel()
	for _, data := range hostile {
		check(t, data)
	}
}

func FuzzData(f *testing.F) {
	for _, data := range hostile {
		f.Add(data)
	}
	f.Fuzz(check)
}
