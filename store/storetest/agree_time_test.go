package storetest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// TestTheSimulatedStoreAgreesInTime takes walks on which time passes, and both stores have the same clock. So
// every moment they answer with must be the same, and whatever has to become old does.
func TestTheSimulatedStoreAgreesInTime(t *testing.T) {
	t.Parallel()
	file := inFile(t)
	rapid.Check(t, func(r *rapid.T) {
		var failure any // of rapid, which wants to see it in its own goroutine
		synctest.Test(t, func(*testing.T) {
			defer func() { failure = recover() }()
			w := &pair{T: r, ctx: context.Background(), spans: fine, exact: true}
			if slack := fine.short.Draw(r, "slack"); slack > time.Microsecond { // proofs ripen only where it stays the same
				w.slack = slack
			}
			defer w.open(r, file, inMemory(time.Now))()
			for _, h := range w.both {
				h.exact = true
			}
			actions := w.actions()
			actions["wait"], actions["wait more"], actions["wait on"] = w.pass, w.pass, w.pass
			actions["come out"], actions["come out again"] = w.comeOut, w.comeOut
			actions["lose"], actions["unticket lost again"] = w.lose, w.unticketLost
			actions["break off"] = w.breakOff
			if aim := rapid.SampledFrom(aims).Draw(r, "aim"); aim != nil {
				maps.DeleteFunc(actions, func(name string, _ func(*rapid.T)) bool { return !slices.Contains(aim, name) })
			}
			r.Repeat(actions)
		})
		if failure != nil {
			panic(failure)
		}
	})
}

// aims are the actions of walks that get further in one direction; nil means all of them.
var aims = [][]string{
	nil,
	{"", "wait", "insert", "open run", "claim", "apply", "apply more", "apply another", "park", "dispatch due", "dispatch receipts"},
	{"", "wait", "wait more", "insert", "open run", "claim", "apply", "apply more", "apply another", "dispatch due", "dispatch receipts", "discharge", "come out", "come out again", "lose", "break off", "unticket lost", "unticket lost again"},
}

// fine spans meet the bounds that the stores have of their own, and each other.
var fine = spans{
	waits:  rapid.SampledFrom([]time.Duration{0, 0, 1, time.Second, 10 * time.Second, time.Hour}),
	short:  rapid.SampledFrom([]time.Duration{1, time.Microsecond, time.Second, 3 * time.Second, 10 * time.Second, time.Minute, time.Hour}),
	leases: rapid.SampledFrom([]time.Duration{1, time.Microsecond, time.Second, time.Minute, time.Hour, 100 * time.Hour, 100 * time.Hour}),
	ages:   rapid.SampledFrom([]time.Duration{0, 0, 1, time.Second, time.Minute, time.Hour}),
}

// pass lets time go by.
func (w *pair) pass(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{
		1, time.Microsecond, time.Second, time.Second, 3*time.Second - time.Microsecond, 3 * time.Second,
		10*time.Second - time.Microsecond, 10 * time.Second, 10*time.Second + time.Microsecond, time.Minute, 10 * time.Minute, time.Hour,
	}).Draw(t, "time"))
}

// comeOut has a sentinel of every lane come out as soon as it is sent.
func (w *pair) comeOut(*rapid.T) {
	w.ask("come out", func(h *half, _ int) (string, error) {
		sentinels, err := h.SentinelsDue(w.ctx, 0, 0)
		for _, s := range sentinels {
			if err == nil {
				err = h.Drained(w.ctx, s)
			}
		}
		return "", err
	})
}

// lose publishes all there is to publish, to nobody.
func (w *pair) lose(*rapid.T) {
	w.ask("lose", func(h *half, _ int) (string, error) {
		if err := h.Discharge(w.ctx, h.receipts); err != nil {
			return "", err
		}
		result, err := h.DispatchDue(w.ctx, store.Lanes{}, 1000, func(_ context.Context, due []store.Due) []bool {
			return slices.Repeat([]bool{true}, len(due))
		})
		return fmt.Sprint(result), err
	})
}

// breakOff has a new run take all it can and hand it back.
func (w *pair) breakOff(*rapid.T) {
	w.ask("break off", func(h *half, _ int) (string, error) {
		run, err := h.OpenRun(w.ctx, store.RunInfo{Name: "w", Concurrency: 1}, time.Second)
		if err != nil {
			return "", err
		}
		h.runs = append(h.runs, run)
		tickets := make([]message.Ticket, len(h.tasks))
		for i := range tickets {
			tickets[i] = message.Ticket{Task: h.tasks[i], Attempt: w.rows[i].Attempt}
		}
		claims, err := h.Claim(w.ctx, run, store.AnyOf("one", "two", "x.y/z"), tickets, store.IntoExecutors)
		var moves []holdfast.Transition
		for _, claim := range claims {
			if move, err := holdfast.Settle(claim.Task, holdfast.Interrupted(nil), h.now, holdfast.DefaultPolicy()); err == nil && claim.Verdict == store.Claimed {
				moves = append(moves, move)
			}
		}
		if err != nil {
			return "", err
		}
		accepted, err := h.Apply(w.ctx, moves)
		return fmt.Sprint(accepted), err
	})
}

// meanwhile draws what somebody else does with tasks that are being published.
func (w *pair) meanwhile(t *rapid.T) func(*half, []store.Due) string {
	if !w.exact {
		return func(*half, []store.Due) string { return "" }
	}
	run, what := w.whichRun(t), rapid.IntRange(0, 5).Draw(t, "meanwhile")
	return func(h *half, due []store.Due) string {
		first := []message.Ticket{due[0].Ticket}
		switch what {
		case 0:
			claims, err := h.Claim(w.ctx, h.runID(run), store.AnyOf("one", "two", "x.y/z"), first, store.IntoExecutors)
			if err != nil {
				return kindOf(err)
			}
			return fmt.Sprint(claims[0].Verdict)
		case 1:
			return fmt.Sprint(h.Park(w.ctx, first, 0, "meanwhile"))
		case 2:
			return fmt.Sprint(h.Unticket(w.ctx, first))
		case 3:
			result, err := h.DispatchDue(w.ctx, store.Lanes{}, 2, func(_ context.Context, due []store.Due) []bool { return make([]bool, len(due)) })
			return fmt.Sprint(result, err)
		}
		return ""
	}
}
