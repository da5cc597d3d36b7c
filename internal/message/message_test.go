package message_test

import (
	"bytes"
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

// drawMessage draws any message of the three kinds.
func drawMessage(t *rapid.T) message.Message {
	if rapid.Bool().Draw(t, "sentinel") {
		at := time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).UTC()
		return message.Message{Sentinel: &message.Sentinel{Lane: rapid.StringN(1, 20, 100).Draw(t, "lane"), At: at}}
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
		Run:     holdfast.RunID(rapid.Int64Range(1, math.MaxInt64).Draw(t, "run")),
		Page:    rapid.Int64Range(0, math.MaxInt64).Draw(t, "page"),
		Tickets: tickets,
	}}
}

func TestMessagesSurviveTheJourney(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawMessage(t)
		got, err := message.Decode(want.Encode())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v\nwant %+v", got, err, want)
		}
	})
}

func TestTheWireFormat(t *testing.T) {
	t.Parallel()
	tickets := []message.Ticket{{Task: 5, Attempt: 1}, {Task: 6, Attempt: 2}}
	for want, m := range map[string]message.Message{
		`{"v":1,"t":[[5,1],[6,2]]}`:                                  {Tickets: tickets},
		`{"v":1,"t":[[5,1],[6,2]],"run":9,"page":3}`:                 {Manifest: &message.Manifest{Run: 9, Page: 3, Tickets: tickets}},
		`{"v":1,"t":[[5,1],[6,2]],"run":9}`:                          {Manifest: &message.Manifest{Run: 9, Tickets: tickets}},
		`{"v":1,"lane":"default","sentinel":"2026-07-01T12:00:00Z"}`: {Sentinel: &message.Sentinel{Lane: "default", At: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)}},
	} {
		if got := string(m.Encode()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestMalformedMessagesAreExplained(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		``:                                      "not a holdfast message: EOF",
		`null`:                                  "message version 0 is not 1, the one this build reads",
		`5`:                                     "not a holdfast message",
		`{"v":1,"t":[[5,1]]`:                    "not a holdfast message",
		`{"v":1,"t":[[5,1]]} 1`:                 "more than one JSON value",
		`{"v":1,"t":[[5,1]]} x`:                 "more than one JSON value",
		`{"v":2,"t":[[5,1]]}`:                   "message version 2 is not 1",
		`{"t":[[5,1]]}`:                         "message version 0 is not 1",
		`{"v":1,"new":1}`:                       `unknown field "new"`,
		`{"v":1}`:                               "a message carries 1 to 1000 tickets, not 0",
		`{"v":1,"t":[]}`:                        "a message carries 1 to 1000 tickets, not 0",
		`{"v":1,"t":[[5]]}`:                     "ticket 1 of task 5, attempt 0 is out of range",
		`{"v":1,"t":[[0,1]]}`:                   "ticket 1 of task 0, attempt 1 is out of range",
		`{"v":1,"t":[[1,1],[1,-1]]}`:            "ticket 2 of task 1, attempt -1 is out of range",
		`{"v":1,"t":[[1,2147483648]]}`:          "is out of range",
		`{"v":1,"t":[[1e99,1]]}`:                "not a holdfast message",
		`{"v":1,"t":[["1",1]]}`:                 "not a holdfast message",
		`{"v":1,"t":[[1,1]],"run":-1}`:          "run -1, page 0 is not a manifest",
		`{"v":1,"t":[[1,1]],"page":1}`:          "run 0, page 1 is not a manifest",
		`{"v":1,"t":[[1,1]],"run":1,"page":-1}`: "run 1, page -1 is not a manifest",
		`{"v":1,"t":[[1,1]],"lane":"a"}`:        "only a sentinel names a lane",
		`{"v":1,"sentinel":"2026-07-01T12:00:00Z"}`:                        "a sentinel carries a lane and a time only",
		`{"v":1,"lane":"a","sentinel":"soon"}`:                             "not a holdfast message",
		`{"v":1,"lane":"a","sentinel":"2026-07-01T12:00:00Z","t":[[1,1]]}`: "a sentinel carries a lane and a time only",
		`{"v":1,"lane":"a","sentinel":"2026-07-01T12:00:00Z","run":1}`:     "a sentinel carries a lane and a time only",
		`{"v":1,"lane":"a","sentinel":"2026-07-01T12:00:00Z","page":1}`:    "a sentinel carries a lane and a time only",
		`{"v":1,"lane":"a","sentinel":"9999-12-31T23:59:59-01:00"}`:        "a sentinel carries a lane and a time only",
		`{"v":1,"` + strings.Repeat("k", 1000) + `":1}`:                    "not a holdfast message: json: unknown field \"kkk",
		strings.Repeat(" ", 1<<20):                                         "1048576 bytes are more than 65536",
		`{"v":1,"t":[` + strings.Repeat("[1,1],", 1000) + `[1,1]]}`:        "a message carries 1 to 1000 tickets, not 1001",
	} {
		m, err := message.Decode([]byte(body))
		if err == nil || !strings.Contains(err.Error(), want) || !reflect.DeepEqual(m, message.Message{}) {
			t.Errorf("%.100s: got %+v, %v; want %s", body, m, err, want)
		}
	}
}

// FuzzDecode: whatever arrives is refused, or is a message whose own encoding says
// the same.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"v":1,"t":[[5,1],[6,2]],"run":9,"page":3}`))
	f.Add([]byte(`{"v":1,"lane":"default","sentinel":"2026-07-01T12:00:00.5+02:00"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := message.Decode(body)
		if err != nil {
			if !reflect.DeepEqual(m, message.Message{}) {
				t.Fatalf("%+v besides %v", m, err)
			}
			if text := err.Error(); len(text) < 10 || len(text) > 300 || !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\r\n") {
				t.Fatalf("no reason to put into a header: %q", text)
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
