package inproc_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/inproc"
)

func TestWaitingReceiversAreServedInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := open(t)
		declare(t, b, "q")
		const readers, rounds = 3, 20
		var last int
		for i := range readers {
			sub := subscribe(t, b, "q", 5)
			go func() {
				for d := range sub.Deliveries() {
					last = i
					must(t, sub.Ack(d.Tag, broker.One))
				}
			}()
			synctest.Wait() // makes the subscriptions wait in this order
		}
		for n := range readers * rounds {
			send(t, b, "q", "x")
			synctest.Wait()
			if want := n % readers; last != want {
				t.Fatalf("message %d went to reader %d, want reader %d", n, last, want)
			}
		}
	})
}

func TestABacklogIsSharedByReceivers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := open(t)
		declare(t, b, "q")
		send(t, b, "q", numbered(10)...)
		idle, one, two := subscribe(t, b, "q", 100), subscribe(t, b, "q", 100), subscribe(t, b, "q", 100)
		synctest.Wait()
		seen := map[string]bool{}
		take := func() {
			select {
			case d := <-one.Deliveries():
				seen[string(d.Body)] = true
			case d := <-two.Deliveries():
				seen[string(d.Body)] = true
			}
			synctest.Wait()
		}
		for range 9 {
			take()
		}
		if len(seen) != 9 || ready(t, b, "q") != 1 { // the pump of idle has the last message
			t.Fatalf("received %v, %d ready", seen, ready(t, b, "q"))
		}
		must(t, idle.Close())
		take()
		if len(seen) != 10 {
			t.Fatalf("received %v", seen)
		}
	})
}

// TestAWithdrawnMessageKeepsItsPosition withdraws the pending messages of two subscriptions, in either order.
func TestAWithdrawnMessageKeepsItsPosition(t *testing.T) {
	t.Parallel()
	for _, reversed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := open(t)
			declare(t, b, "q")
			send(t, b, "q", numbered(6)...)
			reader := subscribe(t, b, "q", 2)
			list := expect(t, reader, "0", "1")
			must(t, reader.Pause())
			var idle []broker.Subscription
			for range 2 {
				idle = append(idle, subscribe(t, b, "q", 9)) // their pending messages are 2 and 3
				synctest.Wait()
			}
			if reversed {
				idle[0], idle[1] = idle[1], idle[0]
			}
			must(t, idle[0].Pause())
			must(t, idle[1].Close())
			must(t, reader.Requeue(list[0].Tag))
			must(t, reader.Requeue(list[1].Tag))
			must(t, idle[0].Resume(9)) // its pending message is 0
			must(t, idle[0].Pause())
			expect(t, subscribe(t, b, "q", 9), "0", "1", "2", "3", "4", "5")
		})
	}
}

func TestAPausedOrFullReceiverKeepsNothingFromOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := open(t)
		declare(t, b, "q")
		send(t, b, "q", "a")
		full, paused := subscribe(t, b, "q", 1), subscribe(t, b, "q", 1)
		must(t, paused.Pause())
		expect(t, full, "a")
		send(t, b, "q", "b", "c")
		synctest.Wait()
		other := subscribe(t, b, "q", 9)
		expect(t, other, "b", "c")
	})
}

func TestDepthsAreExact(t *testing.T) {
	t.Parallel()
	b := open(t)
	declare(t, b, "q")
	check := func(ready, consumers int) {
		t.Helper()
		depths, err := b.Depths(t.Context(), []string{"q"})
		must(t, err)
		if got, want := depths["q"], (broker.Depth{Ready: ready, Consumers: consumers}); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
	send(t, b, "q", numbered(5)...)
	check(5, 0)
	sub := subscribe(t, b, "q", 2)
	check(5, 1)
	for n := 4; n >= 3; n-- {
		receive(t, sub)
		check(n, 1)
	}
	must(t, sub.Requeue(1))
	check(4, 1)
	must(t, sub.Ack(2, broker.One))
	check(4, 1)
	must(t, sub.Pause())
	check(4, 0)
	must(t, sub.Close())
	check(4, 0)
}

func TestBuffersAreNotShared(t *testing.T) {
	t.Parallel()
	b := open(t)
	declare(t, b, "q")
	buffer := []byte("abc")
	_, err := b.Publish(t.Context(), []broker.Message{{Queue: "q", Body: buffer}, {Queue: "q", Body: buffer}})
	must(t, err)
	clear(buffer)
	sub := subscribe(t, b, "q", 2)
	for _, d := range expect(t, sub, "abc", "abc") {
		clear(d.Body)
		_ = append(d.Body, "more"...)
	}
	must(t, sub.Requeue(1, 2))
	expect(t, sub, "abc", "abc")
}

func TestBrokersAreIndependent(t *testing.T) {
	t.Parallel()
	one, two := open(t), inproc.Open(inproc.Options{})
	declare(t, one, "q")
	missing, err := two.Missing(t.Context(), []broker.Object{{Kind: broker.Queue, Name: "q"}, {Kind: broker.Exchange, Name: "q"}})
	must(t, err)
	same(t, missing, []string{"q", "q"})
	must(t, two.Close())
	must(t, two.Close())
	send(t, one, "q", "a")
}

func TestConcurrentPausesLoseNothing(t *testing.T) {
	t.Parallel()
	const count = 3000
	b := open(t)
	declare(t, b, "q")
	send(t, b, "q", numbered(count)...)
	sub := subscribe(t, b, "q", 3)
	done := make(chan struct{})
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := errors.Join(sub.Pause(), sub.Resume(3)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i, body := range numbered(count) {
		d := receive(t, sub)
		if string(d.Body) != body || d.Tag != uint64(i)+1 || d.Redelivered {
			t.Errorf("delivery %d is %q with tag %d", i, d.Body, d.Tag)
		}
		must(t, sub.Ack(d.Tag, broker.One))
	}
	close(done)
	work.Wait()
}

func TestAPauseReleasesThePendingMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := open(t)
		declare(t, b, "q")
		idle := subscribe(t, b, "q", 9)
		synctest.Wait()
		reader := subscribe(t, b, "q", 9)
		synctest.Wait()
		send(t, b, "q", "a") // goes to the consumer idle, which has waited longest
		synctest.Wait()
		must(t, idle.Pause())
		expect(t, reader, "a")
	})
}

func TestSettlingOldDeliveriesDoesNotExtendTheNewPrefetch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := open(t)
		declare(t, b, "q")
		send(t, b, "q", numbered(9)...)
		sub := subscribe(t, b, "q", 2)
		expect(t, sub, "0", "1")
		must(t, sub.Pause())
		must(t, sub.Resume(2))
		expect(t, sub, "2", "3")
		must(t, sub.Ack(2, broker.UpTo))
		synctest.Wait()
		select {
		case d := <-sub.Deliveries():
			t.Fatalf("received %q beyond the prefetch", d.Body)
		default:
		}
		must(t, sub.Ack(3, broker.One))
		expect(t, sub, "4")
	})
}
