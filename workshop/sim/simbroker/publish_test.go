package simbroker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/workshop/sim/simbroker"
)

const (
	unknown  = broker.Unknown
	stored   = broker.Stored
	returned = broker.Returned
)

func TestFates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fate     simbroker.Fate
		outcomes []broker.Outcome // nil if no outcome is Unknown
		holds    []string
	}{
		"fine":                 {simbroker.Fine(), nil, []string{"q a 0", "q c 0"}},
		"nothing arrives":      {simbroker.Fate{}, []broker.Outcome{unknown, unknown, unknown}, nil},
		"some arrive":          {simbroker.Fate{Arrive: 2}, []broker.Outcome{stored, returned, unknown}, []string{"q a 0"}},
		"more than there are":  {simbroker.Fate{Arrive: 4}, nil, []string{"q a 0", "q c 0"}},
		"unconfirmed":          {simbroker.Fate{Arrive: -1, Unconfirmed: true}, []broker.Outcome{unknown, unknown, unknown}, []string{"q a 0", "q c 0"}},
		"some are unconfirmed": {simbroker.Fate{Arrive: 1, Unconfirmed: true}, []broker.Outcome{unknown, unknown, unknown}, []string{"q a 0"}},
		"nacked":               {simbroker.Fate{Arrive: -1, Nacked: true}, []broker.Outcome{unknown, unknown, unknown}, nil},
		"twice":                {simbroker.Fate{Arrive: -1, Twice: true}, nil, []string{"q a 0", "q c 0", "q a 0", "q c 0"}},
		"some arrive twice":    {simbroker.Fate{Arrive: 1, Twice: true}, []broker.Outcome{stored, unknown, unknown}, []string{"q a 0", "q a 0"}},
	} {
		test(t, name, func(w *world) {
			sub := w.subscribe(w.client, "q", 1)
			w.must(sub.Pause())
			w.net.fate = c.fate
			list := messages("q", "a", "b", "c")
			list[1].Queue = "nowhere"
			outcomes, err := w.client.Publish(w.Context(), list)
			if c.outcomes == nil {
				w.mustBe(err, broker.ErrNoQueue)
				w.same([]string{fmt.Sprint(outcomes)}, []string{fmt.Sprint([]broker.Outcome{stored, returned, stored})})
			} else {
				w.unknown(outcomes, err, c.outcomes...)
			}
			w.holds(c.holds...)
			w.net.fate = simbroker.Fine()
			_, err = w.client.Publish(w.Context(), messages("q", "d"))
			w.must(err)
			w.expect(sub) // the subscription is on another connection and has not ended
		})
	}
}

func TestMessagesAreCopied(t *testing.T) {
	t.Parallel()
	test(t, "body", func(w *world) {
		list := messages("q", "a")
		_, err := w.other.Publish(w.Context(), list)
		w.must(err)
		list[0].Body[0] = 'x'
		sub := w.subscribe(w.other, "q", 1)
		(<-sub.Deliveries()).Body[0] = 'x'
		w.must(sub.Close())
		w.holds("q a 1")
	})
}

func TestAPublishWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	test(t, "ends at its limit, and may still arrive", func(w *world) {
		w.net.mute = true
		began := time.Now()
		outcomes, err := w.client.Publish(w.Context(), messages("q", "a"))
		w.unknown(outcomes, err, unknown)
		if took := time.Since(began); took != 5*time.Second {
			w.Errorf("Publish took %s", took)
		}
		w.net.late[0](simbroker.Fine())
		w.unknown(outcomes, err, unknown)
		w.holds("q a 0")
	})
	test(t, "ends with the connection, at once", func(w *world) {
		w.net.mute = true
		began := time.Now()
		time.AfterFunc(time.Second, w.client.Disconnect)
		outcomes, err := w.client.Publish(w.Context(), messages("q", "a"))
		w.unknown(outcomes, err, unknown)
		if took := time.Since(began); took != time.Second {
			w.Errorf("Publish took %s", took)
		}
		w.net.late[0](simbroker.Fine())
		w.holds()
	})
	test(t, "ends with its context", func(w *world) {
		w.net.mute = true
		ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
		defer cancel()
		outcomes, err := w.client.Publish(ctx, messages("q", "a"))
		w.unknown(outcomes, err, unknown)
	})
	test(t, "in a later publish group", func(w *world) {
		bodies := make([]string, 1200)
		calls := 0
		c := w.Client(counting{w.net, func() { w.net.mute = calls == 1; calls++ }})
		outcomes, err := c.Publish(w.Context(), messages("q", bodies...))
		if err == nil || outcomes[499] != stored || outcomes[500] != unknown || outcomes[1199] != unknown {
			w.Errorf("got error %v and outcomes %d, %d, %d", err, outcomes[499], outcomes[500], outcomes[1199])
		}
		if calls != 2 {
			w.Errorf("%d publish groups were sent, want 2", calls)
		}
		w.net.mute = false
		w.must(c.Close())
	})
}

// counting calls a function before each call.
type counting struct {
	*manual
	before func()
}

func (n counting) Call(ctx context.Context, step simbroker.Step, effect func(simbroker.Fate)) error {
	n.before()
	return n.manual.Call(ctx, step, effect)
}

func TestAnAlarm(t *testing.T) {
	t.Parallel()
	test(t, "refuses messages at once", func(w *world) {
		w.client.SetBlocked("memory")
		if h := w.client.Health(); !h.Connected || h.Blocked != "memory" {
			w.Errorf("got %+v", h)
		}
		w.send("q", "from another client")
		sub := w.subscribe(w.client, "q", 1)
		w.net.deliver()
		w.must(sub.Ack(w.expect(sub, "from another client")[0], broker.One))
		began := time.Now()
		if outcomes, err := w.client.Publish(w.Context(), messages("q", "a")); outcomes[0] != unknown || !errors.Is(err, holdfast.ErrUnavailable) || time.Since(began) > 0 {
			w.Errorf("during the alarm: got outcome %d and error %v after %s", outcomes[0], err, time.Since(began))
		}
		w.client.SetBlocked("")
		if outcomes, err := w.client.Publish(w.Context(), messages("q", "b")); outcomes[0] != stored || err != nil {
			w.Errorf("after the alarm: got outcome %d and error %v", outcomes[0], err)
		}
	})
}
