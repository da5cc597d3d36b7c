package message_test

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
)

// FuzzManifest encodes manifests with arbitrary numbers. Decode must return manifests within the limits unchanged, and
// must refuse all others.
func FuzzManifest(f *testing.F) {
	for _, seed := range []struct{ worker, page, rounds int64 }{
		{1, 1, 0}, {math.MaxInt64, math.MaxInt64, math.MaxInt32}, {0, 0, 0}, {-1, 5, 1}, {3, -1, 0}, {3, 0, math.MinInt64},
	} {
		f.Add(seed.worker, seed.page, seed.rounds, uint16(3), int64(5), int64(1))
	}
	f.Fuzz(func(t *testing.T, worker, page, rounds int64, count uint16, task, attempt int64) {
		n := int(count) % (message.MaxTickets + 3)
		tickets := make([]message.Ticket, n)
		for i := range tickets { // each task appears up to three times
			tickets[i] = message.Ticket{Task: holdfast.TaskID(task - int64(i/3)), Attempt: int(attempt)}
		}
		want := message.Manifest{Worker: holdfast.WorkerID(worker), Page: page, Rounds: int(rounds), Tickets: tickets}
		valid := worker > 0 && page >= 0 && rounds >= 0 && n > 0 && n <= message.MaxTickets && attempt > 0 && attempt <= math.MaxInt32 &&
			!slices.ContainsFunc(tickets, func(ticket message.Ticket) bool { return ticket.Task <= 0 })
		got, err := message.Decode(message.Message{Manifest: &want}.Encode())
		switch {
		case valid && (err != nil || got.Manifest == nil || !reflect.DeepEqual(*got.Manifest, want)):
			t.Fatalf("got %+v, %v\nwant %+v", got.Manifest, err, want)
		case !valid && got.Manifest != nil:
			t.Fatalf("%+v is decoded as a manifest", got.Manifest)
		case !valid && err == nil && (worker != 0 || page != 0 || rounds != 0): // without a worker, only tickets remain
			t.Fatalf("%+v is decoded as %+v", want, got)
		}
	})
}
