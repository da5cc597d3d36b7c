package message

import (
	"reflect"
	"testing"

	"github.com/holdfastq/holdfast"
)

// The short way must read nothing differently from the long one.
func FuzzScanWire(f *testing.F) {
	for _, m := range []Message{
		{Tickets: []Ticket{{1, 1}}},
		{Tickets: []Ticket{{9223372036854775807, 3}, {12, 2147483647}}},
		{Manifest: &Manifest{Run: 5, Page: 7, Rounds: 2, Tickets: []Ticket{{1, 1}, {2, 9}}}},
		{Manifest: &Manifest{Run: 5, Tickets: []Ticket{{1, 1}}}},
	} {
		f.Add(m.Encode())
	}
	for _, body := range []string{`{"v":1,"t":[]}`, `{"v":1,"t":[[01,1]]}`, `{"v":1,"t":[[1,1],]}`, `{"v":1,"t":[[1,1]],"page":1,"run":2}`, `{"v":1,"t":[[-1,1]]} `} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		short, ok := scanWire(body)
		if !ok {
			return
		}
		long, err := parseWire(body)
		if err != nil || !reflect.DeepEqual(short, long) {
			t.Errorf("%q: %+v, and parsed %+v, %v", body, short, long, err)
		}
	})
}

func TestWhatIsWrittenIsScanned(t *testing.T) {
	t.Parallel()
	for _, m := range []Message{
		{Tickets: []Ticket{{1, 1}, {99999999999, 1000}}},
		{Manifest: &Manifest{Run: 5, Page: 7, Rounds: 2, Tickets: []Ticket{{1, 1}}}},
	} {
		if _, ok := scanWire(m.Encode()); !ok {
			t.Errorf("%s takes the long way", m.Encode())
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	tickets := make([]Ticket, 64)
	for i := range tickets {
		tickets[i] = Ticket{holdfast.TaskID(1_000_000 + i), 1}
	}
	body := Message{Tickets: tickets}.Encode()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(body); err != nil {
			b.Fatal(err)
		}
	}
}
