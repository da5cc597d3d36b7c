package message

import (
	"reflect"
	"testing"

	"github.com/holdfastq/holdfast"
)

// FuzzScanEncoding checks that scanEncoding decodes nothing differently from parseEncoding.
func FuzzScanEncoding(f *testing.F) {
	for _, m := range []Message{
		{Tickets: []Ticket{{1, 1}}},
		{Tickets: []Ticket{{9223372036854775807, 3}, {12, 2147483647}}},
		{Manifest: &Manifest{Worker: 5, Page: 7, Rounds: 2, Tickets: []Ticket{{1, 1}, {2, 9}}}},
		{Manifest: &Manifest{Worker: 5, Tickets: []Ticket{{1, 1}}}},
	} {
		f.Add(m.Encode())
	}
	for _, body := range []string{`{"v":1,"t":[]}`, `{"v":1,"t":[[01,1]]}`, `{"v":1,"t":[[1,1],]}`, `{"v":1,"t":[[1,1]],"page":1,"worker":2}`, `{"v":1,"t":[[-1,1]]} `} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		scanned, ok := scanEncoding(body)
		if !ok {
			return
		}
		parsed, err := parseEncoding(body)
		if err != nil || !reflect.DeepEqual(scanned, parsed) {
			t.Errorf("%q: scanned %+v, parsed %+v, %v", body, scanned, parsed, err)
		}
	})
}

func TestEncodedMessagesAreScanned(t *testing.T) {
	t.Parallel()
	for _, m := range []Message{
		{Tickets: []Ticket{{1, 1}, {99999999999, 1000}}},
		{Manifest: &Manifest{Worker: 5, Page: 7, Rounds: 2, Tickets: []Ticket{{1, 1}}}},
	} {
		if _, ok := scanEncoding(m.Encode()); !ok {
			t.Errorf("%s is not scanned", m.Encode())
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
