package message_test

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
)

// FuzzManifest writes manifests of any numbers: those within the limits survive the journey as they are, and
// no other one is read as a manifest.
func FuzzManifest(f *testing.F) {
	for _, seed := range []struct{ run, page, rounds int64 }{
		{1, 1, 0}, {math.MaxInt64, math.MaxInt64, math.MaxInt32}, {0, 0, 0}, {-1, 5, 1}, {3, -1, 0}, {3, 0, math.MinInt64},
	} {
		f.Add(seed.run, seed.page, seed.rounds, uint16(3), int64(5), int64(1))
	}
	f.Fuzz(func(t *testing.T, run, page, rounds int64, count uint16, task, attempt int64) {
		n := int(count) % (message.MaxTickets + 3)
		tickets := make([]message.Ticket, n)
		for i := range tickets { // every third one is there twice
			tickets[i] = message.Ticket{Task: holdfast.TaskID(task - int64(i/3)), Attempt: int(attempt)}
		}
		want := message.Manifest{Run: holdfast.RunID(run), Page: page, Rounds: int(rounds), Tickets: tickets}
		valid := run > 0 && page >= 0 && rounds >= 0 && n > 0 && n <= message.MaxTickets && attempt > 0 && attempt <= math.MaxInt32 &&
			!slices.ContainsFunc(tickets, func(ticket message.Ticket) bool { return ticket.Task <= 0 })
		got, err := message.Decode(message.Message{Manifest: &want}.Encode())
		switch {
		case valid && (err != nil || got.Manifest == nil || !reflect.DeepEqual(*got.Manifest, want)):
			t.Fatalf("got %+v, %v\nwant %+v", got.Manifest, err, want)
		case !valid && got.Manifest != nil:
			t.Fatalf("%+v is read as a manifest", got.Manifest)
		case !valid && err == nil && (run != 0 || page != 0 || rounds != 0): // without a run it is a message of tickets
			t.Fatalf("%+v is read as %+v", want, got)
		}
	})
}
