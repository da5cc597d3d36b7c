package main

import (
	"bufio"
	"slices"
	"strings"
	"testing"
)

func TestRelayCallsTheHandlerForEveryJob(t *testing.T) {
	t.Parallel()
	var got []string
	out := bufio.NewReader(strings.NewReader("2 \"a b\"\n1 {\"c\":1}\nended\nmore"))
	err := relay(out, "ended", func(payload []byte) error {
		got = append(got, string(payload))
		return nil
	})
	if want := []string{`"a b"`, `"a b"`, `{"c":1}`}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if rest, _ := out.ReadString(0); rest != "more" {
		t.Errorf("rest after the last line: %q, want \"more\"", rest)
	}
}

func TestRelayRefusesUnexpectedLines(t *testing.T) {
	t.Parallel()
	handle := func([]byte) error { return nil }
	for lines, c := range map[string]struct {
		handle func([]byte) error
		want   string
	}{
		"2 \"a\"\n":        {handle, `read from graphile-worker until "ended": EOF`},
		"Error: no such\n": {handle, `unexpected line from graphile-worker: "Error: no such"`},
		"ended too\n":      {handle, `unexpected line from graphile-worker: "ended too"`},
		"1 \"early\"\n":    {nil, `unexpected line from graphile-worker: "1 \"early\""`},
	} {
		if err := relay(bufio.NewReader(strings.NewReader(lines)), "ended", c.handle); err == nil || err.Error() != c.want {
			t.Errorf("%q: got %v, want %s", lines, err, c.want)
		}
	}
}
