package simbroker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

func TestDisconnect(t *testing.T) {
	t.Parallel()
	test(t, "gives back what was not settled, in order, and counts it", func(w *world) {
		w.send("q", "a", "b", "c", "d")
		sub := w.subscribe(w.client, "q", 3)
		w.net.deliver()
		w.must(sub.Ack((<-sub.Deliveries()).Tag, broker.One))
		w.client.Disconnect()
		w.net.deliver() // the ack arrives too late and has no effect
		w.holds("q a 1", "q b 1", "q c 1", "q d 0")
		w.expect(sub, "end") // b and c were not received in time
		w.mustBe(sub.Ack(1, broker.One), broker.ErrSubscriptionEnded)
		w.mustBe(sub.Requeue(), broker.ErrSubscriptionEnded)
		w.must(sub.Close())
		w.expect(w.subscribe(w.other, "q", 9), "a*", "b*", "c*", "d")
	})
	test(t, "ends deliveries on their way", func(w *world) {
		w.send("q", "a")
		sub := w.subscribe(w.client, "q", 3)
		w.client.Disconnect()
		w.net.deliver()
		w.expect(sub, "end")
		sub = w.subscribe(w.client, "q", 3)
		w.net.deliver()
		w.expect(sub, "a*")
	})
	test(t, "requeues nothing to another channel of the same client", func(w *world) {
		w.subscribe(w.client, "q", 9)
		w.subscribe(w.client, "q", 9)
		w.send("q", "a", "b")
		w.client.Disconnect()
		w.holds("q a 1", "q b 1")
	})
	test(t, "makes it irrelevant which frames arrive", func(w *world) {
		w.send("q", "a", "b")
		sub := w.subscribe(w.client, "q", 9)
		w.net.deliver()
		for _, tag := range w.expect(sub, "a", "b") {
			w.must(sub.Ack(tag, broker.One))
		}
		w.client.Disconnect()
		w.net.first() // this frame is lost
		w.net.deliver()
		w.holds("q a 1", "q b 1")
	})
	test(t, "of one client does not touch others", func(w *world) {
		sub := w.subscribe(w.other, "q", 1)
		w.client.Disconnect()
		w.send("q", "a")
		w.expect(sub, "a")
	})
}

func TestHalfOpen(t *testing.T) {
	t.Parallel()
	test(t, "the broker keeps what the connection holds, until it notices", func(w *world) {
		w.send("q", "a", "b", "c")
		old := w.subscribe(w.client, "q", 3)
		w.net.deliver()
		tags := w.expect(old, "a", "b", "c")
		w.must(old.Ack(tags[0], broker.One))
		w.client.HangUp()
		w.expect(old, "end")
		w.mustBe(old.Ack(tags[1], broker.One), broker.ErrSubscriptionEnded)
		w.net.deliver() // the ack that was sent before
		sub := w.subscribe(w.client, "q", 3)
		w.send("q", "d", "e")
		w.net.deliver()
		w.expect(sub, "e") // d was delivered to the half-open connection
		if n := w.Subscriptions(); n != 2 {
			w.Errorf("%d subscriptions", n)
		}
		w.holds("q b 0+", "q c 0+", "q d 0+", "q e 0+")
		w.client.Expire()
		w.net.deliver()
		w.expect(sub, "b*", "c*")
		w.client.Forget()
		w.net.deliver()
		w.expect(sub)
		w.expect(w.subscribe(w.other, "q", 9), "d*", "e*", "b*", "c*")
	})
	test(t, "the broker gives up first", func(w *world) {
		idle := w.subscribe(w.client, "q", 1)
		w.must(idle.Pause())
		w.send("q", "a", "b")
		sub := w.subscribe(w.client, "q", 1)
		w.net.deliver()
		tag := w.expect(sub, "a")[0]
		w.client.Forget()
		w.must(sub.Ack(tag, broker.One)) // the client does not know yet
		w.net.deliver()
		w.expect(sub)
		w.holds("q a 1", "q b 0")
		w.mustBe(sub.Pause(), broker.ErrSubscriptionEnded)
		w.expect(sub, "end")
		w.mustBe(idle.Resume(1), broker.ErrSubscriptionEnded)
		w.expect(w.subscribe(w.other, "q", 9), "a*", "b")
	})
	test(t, "a client learns from any request that the broker gave up its connection", func(w *world) {
		for range 2 {
			_, err := w.client.Publish(w.Context(), messages("q", "a"))
			w.must(err)
			_, err = w.client.Missing(w.Context(), []broker.Object{queue("q", "")})
			w.must(err)
			sub := w.subscribe(w.client, "q", 1)
			w.client.Forget()
			outcomes, err := w.client.Publish(w.Context(), messages("q", "a"))
			w.unknown(outcomes, err, unknown)
			_, err = w.client.Missing(w.Context(), []broker.Object{queue("q", "")})
			w.mustBe(err, holdfast.ErrUnavailable)
			second := w.subscribe(w.client, "q", 1)
			w.expect(sub, "end")
			w.must(second.Close())
		}
	})
}

func TestCut(t *testing.T) {
	t.Parallel()
	test(t, "is noticed by both and hits one client", func(w *world) {
		w.send("q", "a")
		sub, own := w.subscribe(w.client, "q", 1), w.subscribe(w.other, "q", 1)
		w.net.deliver()
		w.expect(sub, "a")
		w.client.SetCut(true)
		w.expect(sub, "end")
		w.expect(own, "a*")
		if h := w.client.Health(); h.Connected || h.Err == nil {
			w.Errorf("got %+v", h)
		}
		outcomes, err := w.client.Publish(w.Context(), messages("q", "b"))
		w.unknown(outcomes, err, unknown)
		w.client.SetCut(false)
		_, err = w.client.Publish(w.Context(), messages("q", "b"))
		w.must(err)
	})
	test(t, "is not noticed by the broker", func(w *world) {
		w.send("q", "a")
		sub, own := w.subscribe(w.client, "q", 1), w.subscribe(w.other, "q", 1)
		w.client.CutSilently()
		w.expect(sub, "end")
		outcomes, err := w.client.Publish(w.Context(), messages("q", "b"))
		w.unknown(outcomes, err, unknown)
		w.client.SetCut(false)
		_, err = w.client.Publish(w.Context(), messages("q", "b"))
		w.must(err)
		w.expect(own, "b")
		w.holds("q a 0+", "q b 0+")
		w.client.Expire()
		w.holds("q a 1", "q b 0+")
	})
}

func TestDown(t *testing.T) {
	t.Parallel()
	test(t, "ends all connections at the same moment and keeps the data", func(w *world) {
		one, two := w.subscribe(w.client, "q", 9), w.subscribe(w.other, "q", 9)
		w.send("q", "a", "b")
		w.SetDown(true)
		w.expect(one, "end")
		w.expect(two, "end")
		w.holds("q a 1", "q b 1") // neither received what the other returned
		w.SetDown(false)
		w.expect(w.subscribe(w.other, "q", 2), "a*", "b*")
	})
	test(t, "calls wait as long as the contract says", func(w *world) {
		w.SetDown(true)
		began := time.Now()
		outcomes, err := w.client.Publish(w.Context(), messages("q", "a"))
		w.unknown(outcomes, err, unknown)
		if took := time.Since(began); took != 0 {
			w.Errorf("Publish took %s", took)
		}
		_, err = w.client.Depths(w.Context(), []string{"q"})
		w.mustBe(err, holdfast.ErrUnavailable)
		if took := time.Since(began); took != 5*time.Second {
			w.Errorf("Depths took %s", took)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		_, err = w.client.Subscribe(ctx, "q", 1)
		w.mustBe(err, holdfast.ErrUnavailable)
		if took := time.Since(began); took != time.Minute+5*time.Second {
			w.Errorf("Subscribe took %s", time.Since(began))
		}
		timer := time.AfterFunc(time.Hour, func() { w.SetDown(false) })
		defer timer.Stop()
		began = time.Now()
		w.subscribe(w.client, "q", 1)
		if took := time.Since(began); took != time.Hour {
			w.Errorf("Subscribe took %s", took)
		}
	})
}

func TestWipe(t *testing.T) {
	t.Parallel()
	test(t, "forgets everything", func(w *world) {
		marker := broker.Object{Kind: broker.Exchange, Name: "marker"}
		err := w.client.Declare(w.Context(), []broker.Object{marker})
		w.must(err)
		w.send("q", "a", "b")
		sub, own := w.subscribe(w.client, "q", 1), w.subscribe(w.other, "q", 1)
		w.Wipe()
		w.net.deliver()
		w.expect(sub, "end")
		w.expect(own, "end")
		w.holds()
		w.same(w.left, []string{"q a wiped", "q b wiped"})
		missing, err := w.client.Missing(w.Context(), []broker.Object{marker, queue("q", "")})
		w.must(err)
		w.same(missing, []string{"marker", "q"})
		_, err = w.client.Subscribe(w.Context(), "q", 1)
		w.mustBe(err, broker.ErrNoQueue)
	})
}

func TestDeleteQueue(t *testing.T) {
	t.Parallel()
	test(t, "cancels its subscriptions", func(w *world) {
		w.send("q", "a", "b")
		sub, paused := w.subscribe(w.client, "q", 1), w.subscribe(w.client, "q", 1)
		w.net.deliver()
		w.must(paused.Pause())
		w.net.deliver()
		tag := w.expect(sub, "a")[0]
		w.DeleteQueue("q")
		w.same(w.left, []string{"q b deleted", "q a deleted"})
		w.must(sub.Ack(tag, broker.One)) // the cancellation is on its way
		w.net.deliver()
		w.expect(sub, "end")
		w.mustBe(sub.Ack(tag, broker.One), broker.ErrSubscriptionEnded)
		outcomes, err := w.client.Publish(w.Context(), messages("q", "c"))
		w.mustBe(err, broker.ErrNoQueue)
		if outcomes[0] != returned {
			w.Errorf("got outcome %d", outcomes[0])
		}
		w.expect(paused)
		err = paused.Resume(1)
		w.mustBe(err, broker.ErrSubscriptionEnded)
		w.mustBe(err, broker.ErrNoQueue)
		w.expect(paused, "end")
		if len(w.left) != 2 {
			w.Errorf("left: %q", w.left)
		}
	})
	test(t, "during a Pause", func(w *world) {
		sub := w.subscribe(w.client, "q", 1)
		w.DeleteQueue("q")
		w.mustBe(sub.Pause(), broker.ErrSubscriptionEnded) // the cancellation came before the answer
		w.expect(sub, "end")
		w.net.deliver()
	})
	test(t, "a queue created again under its name is another queue", func(w *world) {
		w.send("q", "a")
		sub := w.subscribe(w.client, "q", 1)
		w.net.deliver()
		tag := w.expect(sub, "a")[0]
		w.must(sub.Pause())
		w.DeleteQueue("q")
		w.declare("q")
		w.send("q", "b")
		w.must(sub.Resume(1))
		w.must(sub.Requeue(tag))
		w.net.deliver()
		w.must(sub.Ack(w.expect(sub, "b")[0], broker.UpTo))
		w.net.deliver()
		w.same(w.left, []string{"q a deleted", "q b acked"})
	})
}

func TestNoAnswer(t *testing.T) {
	t.Parallel()
	test(t, "no call hangs forever", func(w *world) {
		w.send("q", "a")
		sub, pausing := w.subscribe(w.client, "q", 1), w.subscribe(w.client, "q", 1)
		w.net.deliver()
		w.net.mute = true
		took := func(want time.Duration, call func() error, is error) {
			w.Helper()
			began := time.Now()
			if err := call(); is != nil {
				w.mustBe(err, is)
			} else {
				w.must(err)
			}
			if d := time.Since(began); d != want {
				w.Errorf("the call took %s, want %s", d, want)
			}
		}
		took(2*time.Second, sub.Close, nil)
		took(0, sub.Close, nil)
		took(10*time.Second, pausing.Pause, broker.ErrSubscriptionEnded)
		took(10*time.Second, func() error { _, err := w.client.Subscribe(w.Context(), "q", 1); return err }, holdfast.ErrUnavailable)
		took(10*time.Second, func() error { _, err := w.client.Missing(w.Context(), []broker.Object{queue("q", "")}); return err }, holdfast.ErrUnavailable)
		w.holds("q a 0+")
		w.net.deliver() // the closes of the channels, one after the other
		w.holds("q a 2")
		for _, effect := range w.net.late { // the requests that were given up
			effect(w.net.fate)
		}
		w.net.deliver()
		w.holds("q a 2")
		if n := w.Subscriptions(); n != 0 {
			w.Errorf("%d subscriptions", n)
		}
		took(0, func() error { w.subscribe(w.other, "q", 1); return nil }, nil)
		took(2*time.Second, w.client.Close, nil)
	})
	test(t, "a lost connection ends every call at once", func(w *world) {
		sub, paused := w.subscribe(w.client, "q", 1), w.subscribe(w.client, "q", 1)
		w.must(paused.Pause())
		w.net.mute = true
		began := time.Now()
		go func() {
			w.mustBe(sub.Pause(), broker.ErrSubscriptionEnded)
			w.mustBe(sub.Close(), nil)
		}()
		go func() { w.mustBe(paused.Resume(1), broker.ErrSubscriptionEnded) }()
		go func() {
			ctx, cancel := context.WithTimeout(w.Context(), 9*time.Second)
			defer cancel()
			_, err := w.client.Subscribe(ctx, "q", 1)
			w.mustBe(err, holdfast.ErrUnavailable) // after a second attempt
			if took := time.Since(began); took != 9*time.Second {
				w.Errorf("Subscribe took %s", took)
			}
		}()
		time.Sleep(time.Second)
		w.client.Disconnect()
		synctest.Wait()
		w.expect(sub, "end")
		w.expect(paused, "end")
		time.Sleep(time.Minute)
	})
}
