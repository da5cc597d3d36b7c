package simbroker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

func TestWhatWasSentBeforeArrivesBefore(t *testing.T) {
	t.Parallel()
	test(t, "a Close", func(w *world) {
		w.send("q", "a", "b", "c")
		sub := w.subscribe(w.client, "q", 3)
		w.net.deliver()
		tags := w.expect(sub, "a", "b", "c")
		w.must(sub.Ack(tags[0], broker.One))
		w.must(sub.Requeue(tags[2]))
		w.must(sub.Close())
		w.same(w.left, []string{"q a acked"})
		w.expect(w.subscribe(w.other, "q", 3), "b*", "c*") // c was delivered again before the subscription ended
		w.net.deliver()
		w.same(w.left, []string{"q a acked"})
	})
	test(t, "the end of a client", func(w *world) {
		w.send("q", "a", "b")
		sub := w.subscribe(w.client, "q", 3)
		w.net.deliver()
		w.must(sub.Ack(w.expect(sub, "a", "b")[0], broker.One))
		w.must(w.client.Close())
		w.expect(sub, "end")
		w.holds("q b 1")
		w.net.deliver()
		w.holds("q b 1")
	})
	test(t, "a Pause", func(w *world) {
		w.send("q", "a", "b", "c", "d")
		sub := w.subscribe(w.client, "q", 2)
		w.net.deliver()
		w.must(sub.Ack(w.expect(sub, "a", "b")[0], broker.One)) // c is delivered, too late
		w.must(sub.Pause())
		w.net.deliver()
		w.expect(sub)
		w.holds("q c 1", "q d 0", "q b 0+")
		w.same(w.left, []string{"q a acked"})
	})
}

func TestPauseGivesBack(t *testing.T) {
	t.Parallel()
	test(t, "deliveries not received and deliveries on their way", func(w *world) {
		w.send("q", "a", "b")
		sub := w.subscribe(w.client, "q", 9)
		w.net.deliver()
		w.send("q", "c", "d")
		first := <-sub.Deliveries()
		w.must(sub.Pause())
		w.must(sub.Pause())
		w.net.deliver() // c and d, then the requeue
		w.expect(sub)
		w.holds("q b 1", "q c 1", "q d 1", "q a 0+")
		w.must(sub.Resume(2))
		w.must(sub.Resume(5))
		w.net.deliver()
		if tags := w.expect(sub, "b*", "c*"); first.Tag != 1 || tags[0] != 2 || tags[1] != 3 {
			w.Errorf("got tags %d and %d", first.Tag, tags)
		}
		w.must(sub.Ack(3, broker.UpTo))
		w.net.deliver()
		w.same(w.left, []string{"q a acked", "q b acked", "q c acked"})
		w.expect(sub, "d*")
	})
}

func TestATagThatWasNeverReceived(t *testing.T) {
	t.Parallel()
	test(t, "is refused and reported", func(w *world) {
		w.send("q", "a", "b", "c")
		sub := w.subscribe(w.other, "q", 2)
		first := <-sub.Deliveries() // the second delivery stays in the channel
		for _, tag := range []uint64{0, 2, 3} {
			w.mustBe(sub.Ack(tag, broker.UpTo), holdfast.ErrInvalid)
			w.mustBe(sub.Requeue(first.Tag, tag), holdfast.ErrInvalid)
		}
		if len(w.misused) != 6 {
			w.Errorf("got misuse reports %q, want 6", w.misused)
		}
		w.misused = nil
		w.holds("q c 0", "q a 0+", "q b 0+")
		w.must(sub.Ack(first.Tag, broker.UpTo))
	})
}

// TestAReaderThatDoesNotKeepUp tests a backlog that exceeds the capacity of the channel of deliveries.
func TestAReaderThatDoesNotKeepUp(t *testing.T) {
	t.Parallel()
	const n = 3000
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = fmt.Sprint(i)
	}
	receive := func(w *world, sub broker.Subscription, from, to int) {
		w.Helper()
		for i := from; i < to; i++ {
			d := <-sub.Deliveries()
			if d.Tag != uint64(i)+1 || string(d.Body) != bodies[i] {
				w.Fatalf("delivery %d is %q, want %q", d.Tag, d.Body, bodies[i])
			}
			w.must(sub.Ack(d.Tag, broker.One))
		}
	}
	test(t, "receives everything", func(w *world) {
		w.send("q", bodies...)
		sub := w.subscribe(w.other, "q", 65535)
		receive(w, sub, 0, n)
		w.send("q", "more")
		w.expect(sub, "more")
	})
	test(t, "pauses in the middle", func(w *world) {
		w.send("q", bodies...)
		sub := w.subscribe(w.other, "q", 65535)
		receive(w, sub, 0, n/3)
		w.must(sub.Pause())
		w.expect(sub)
		w.must(sub.Resume(65535))
		receive(w, sub, n/3, n)
	})
	test(t, "resumes with a higher prefetch", func(w *world) {
		sub := w.subscribe(w.other, "q", 1)
		w.must(sub.Pause())
		w.must(sub.Resume(n))
		w.send("q", bodies...)
		receive(w, sub, 0, n)
	})
	for name, end := range map[string]func(*world, broker.Subscription){
		"closes":                  func(w *world, sub broker.Subscription) { w.must(sub.Close()) },
		"closes the client":       func(w *world, _ broker.Subscription) { w.must(w.other.Close()) },
		"is disconnected":         func(w *world, _ broker.Subscription) { w.other.Disconnect() },
		"pauses and disconnected": func(w *world, sub broker.Subscription) { w.must(sub.Pause()); w.other.Disconnect() },
		"pauses and is disconnected meanwhile": func(w *world, sub broker.Subscription) {
			go w.other.Disconnect()
			_ = sub.Pause()
		},
	} {
		test(t, name, func(w *world) {
			w.send("q", bodies...)
			sub := w.subscribe(w.other, "q", 65535)
			receive(w, sub, 0, 10)
			end(w, sub)
			for range sub.Deliveries() { // at most one delivery was being sent
			}
			time.Sleep(time.Second)
			waiting := 0
			for m := range w.Messages() {
				if m.Holder == nil {
					waiting++
				}
			}
			if waiting != n-10 {
				w.Errorf("%d messages wait, want %d", waiting, n-10)
			}
		})
	}
}
