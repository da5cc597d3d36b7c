package rabbitmq

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// TestLedger compares the ledger with a map from tags to AMQP tags.
func TestLedger(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var l ledger
		open := map[uint64]uint64{}
		var tags, amqpTags uint64
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				tags, amqpTags = tags+1, amqpTags+1
				if got := l.add(amqpTags); got != tags {
					t.Fatalf("tag %d, want %d", got, tags)
				}
				open[tags] = amqpTags
			},
			"withdraw and skip AMQP tags": func(t *rapid.T) {
				if open[tags] == 0 {
					t.Skip("the newest is settled")
				}
				if got := l.withdraw(); got != open[tags] {
					t.Fatalf("withdrew %d, want %d", got, open[tags])
				}
				delete(open, tags)
				tags--
				amqpTags += rapid.Uint64Range(0, 3).Draw(t, "unread")
			},
			"settle": func(t *rapid.T) {
				tag := rapid.Uint64Range(0, tags+1).Draw(t, "tag")
				mode := rapid.SampledFrom([]broker.AckMode{broker.One, broker.UpTo}).Draw(t, "mode")
				got, err := l.settle(tag, mode)
				if tag == 0 || tag > tags {
					if !errors.Is(err, holdfast.ErrInvalid) {
						t.Fatalf("got %v", err)
					}
					return
				}
				want := open[tag]
				delete(open, tag)
				for earlier := tag; mode == broker.UpTo && earlier > 0; earlier-- {
					want = max(want, open[earlier])
					delete(open, earlier)
				}
				if err != nil || got != want {
					t.Fatalf("got %d, %v, want %d", got, err, want)
				}
			},
			"": func(t *rapid.T) {
				if len(l.open) > 0 && l.open[0] == 0 {
					t.Fatal("the first entry is settled")
				}
			},
		})
	})
}
