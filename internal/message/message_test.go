package message_test

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
)

// drawMessage draws a message of any of the three kinds.
func drawMessage(t *rapid.T) message.Message {
	if rapid.Bool().Draw(t, "sentinel") {
		at := time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).UTC()
		return message.Message{Sentinel: &message.Sentinel{Queue: rapid.StringN(1, 20, 100).Draw(t, "queue"), At: at}}
	}
	tickets := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) message.Ticket {
		return message.Ticket{
			Task:    holdfast.TaskID(rapid.Int64Range(1, math.MaxInt64).Draw(t, "task")),
			Attempt: rapid.IntRange(1, math.MaxInt32).Draw(t, "attempt"),
		}
	}), 1, message.MaxTickets).Draw(t, "tickets")
	if rapid.Bool().Draw(t, "tickets only") {
		return message.Message{Tickets: tickets}
	}
	return message.Message{Manifest: &message.Manifest{
		Worker:  holdfast.WorkerID(rapid.Int64Range(1, math.MaxInt64).Draw(t, "worker")),
		Page:    rapid.Int64Range(0, math.MaxInt64).Draw(t, "page"),
		Tickets: tickets,
	}}
}

func TestMessagesAreDecodedAsEncoded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawMessage(t)
		got, err := message.Decode(want.Encode())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v\nwant %+v", got, err, want)
		}
	})
}

func TestEncoding(t *testing.T) {
	t.Parallel()
	tickets := []message.Ticket{{Task: 5, Attempt: 1}, {Task: 6, Attempt: 2}}
	for want, m := range map[string]message.Message{
		`{"v":1,"t":[[5,1],[6,2]]}`:                                   {Tickets: tickets},
		`{"v":1,"t":[[5,1],[6,2]],"worker":9,"page":3}`:               {Manifest: &message.Manifest{Worker: 9, Page: 3, Tickets: tickets}},
		`{"v":1,"t":[[5,1],[6,2]],"worker":9}`:                        {Manifest: &message.Manifest{Worker: 9, Tickets: tickets}},
		`{"v":1,"queue":"default","sentinel":"2026-07-01T12:00:00Z"}`: {Sentinel: &message.Sentinel{Queue: "default", At: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)}},
	} {
		if got := string(m.Encode()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestMalformedMessagesAreExplained(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		``:                                "not a holdfast message: unexpected end of JSON input",
		`null`:                            "not a holdfast message: version 0",
		`5`:                               "not a holdfast message",
		`{"v":1,"t":[[5,1]]`:              "not a holdfast message",
		`{"v":1,"t":[[5,1]]} 1`:           "not a holdfast message: invalid character '1' after top-level value",
		`{"v":1,"t":[[5,1]]} x`:           "not a holdfast message: invalid character 'x' after top-level value",
		`{"t":[[5,1]]}`:                   "not a holdfast message: version 0",
		`{"v":-1,"t":[[5,1]]}`:            "not a holdfast message: version -1",
		`{"v":1}`:                         "a message carries 1 to 1000 tickets, not 0",
		`{"v":1,"t":[]}`:                  "a message carries 1 to 1000 tickets, not 0",
		`{"v":1,"t":[[5]]}`:               "ticket 1 of task 5, attempt 0 is out of range",
		`{"v":1,"t":[[0,1]]}`:             "ticket 1 of task 0, attempt 1 is out of range",
		`{"v":1,"t":[[1,1],[1,-1]]}`:      "ticket 2 of task 1, attempt -1 is out of range",
		`{"v":1,"t":[[1,2147483648]]}`:    "is out of range",
		`{"v":1,"t":[[1e99,1]]}`:          "not a holdfast message",
		`{"v":1,"t":[["1",1]]}`:           "not a holdfast message",
		`{"v":1,"t":[[1,1]],"worker":-1}`: "worker -1, page 0 is not a manifest",
		`{"v":1,"t":[[1,1]],"page":1}`:    "worker 0, page 1 is not a manifest",
		`{"v":1,"t":[[1,1]],"worker":1,"page":-1}`:                          "worker 1, page -1 is not a manifest",
		`{"v":1,"t":[[1,1]],"queue":"a"}`:                                   "only a sentinel names a queue",
		`{"v":1,"sentinel":"2026-07-01T12:00:00Z"}`:                         "a sentinel carries a queue and a time only",
		`{"v":1,"queue":"a","sentinel":"soon"}`:                             "not a holdfast message",
		`{"v":1,"queue":"a","sentinel":"2026-07-01T12:00:00Z","t":[[1,1]]}`: "a sentinel carries a queue and a time only",
		`{"v":1,"queue":"a","sentinel":"2026-07-01T12:00:00Z","worker":1}`:  "a sentinel carries a queue and a time only",
		`{"v":1,"queue":"a","sentinel":"2026-07-01T12:00:00Z","page":1}`:    "a sentinel carries a queue and a time only",
		`{"v":1,"queue":"a","sentinel":"9999-12-31T23:59:59-01:00"}`:        "a sentinel carries a queue and a time only",
		strings.Repeat(" ", 1<<20):                                          "1048576 bytes are more than 65536",
		`{"v":1,"t":[` + strings.Repeat("[1,1],", 1000) + `[1,1]]}`:         "a message carries 1 to 1000 tickets, not 1001",
	} {
		m, err := message.Decode([]byte(body))
		if err == nil || !strings.Contains(err.Error(), want) || !reflect.DeepEqual(m, message.Message{}) {
			t.Errorf("%.100s: got %+v, %v; want %s", body, m, err, want)
		}
	}
}

// FuzzDecode checks that Decode refuses its input, or returns a message that survives encoding and decoding.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"v":1,"t":[[5,1],[6,2]],"worker":9,"page":3}`))
	f.Add([]byte(`{"v":1,"queue":"default","sentinel":"2026-07-01T12:00:00.5+02:00"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := message.Decode(body)
		if err != nil {
			if !reflect.DeepEqual(m, message.Message{}) {
				t.Fatalf("got the message %+v and the error %v", m, err)
			}
			if text := err.Error(); len(text) < 10 || len(text) > 300 || !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\r\n") {
				t.Fatalf("the error does not fit into a header: %q", text)
			}
			return
		}
		kinds := 0
		for _, set := range []bool{m.Tickets != nil, m.Manifest != nil, m.Sentinel != nil} {
			if set {
				kinds++
			}
		}
		encoded := m.Encode()
		again, err := message.Decode(encoded)
		if kinds != 1 || err != nil || !reflect.DeepEqual(again, m) || !bytes.Equal(again.Encode(), encoded) {
			t.Fatalf("got %+v, %v\nwant %+v", again, err, m)
		}
	})
}

// A later build may add members, and may write a version whose other members have a different form.
func TestMessagesOfLaterBuilds(t *testing.T) {
	t.Parallel()
	m, err := message.Decode([]byte(`{"v":1,"trace":{"id":"7"},"t":[[5,1]],"priority":3}`))
	if err != nil || len(m.Tickets) != 1 || m.Tickets[0] != (message.Ticket{Task: 5, Attempt: 1}) {
		t.Errorf("with members of a later build: %+v, %v", m, err)
	}
	for _, body := range []string{`{"v":2,"t":[[5,1]]}`, `{"v":7,"t":"another form"}`, `{"t":{},"v":2}`} {
		var newer *message.NewerError
		if _, err := message.Decode([]byte(body)); !errors.As(err, &newer) || newer.Version < 2 {
			t.Errorf("%s: %v", body, err)
		}
	}
}
