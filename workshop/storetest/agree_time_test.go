package storetest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// TestTheStoreInMemoryAgreesInTime compares sequences during which time passes. Both stores have the same clock, so
// all times in their results must be equal, and rows can reach any age.
func TestTheStoreInMemoryAgreesInTime(t *testing.T) {
	t.Parallel()
	file := sqliteBackend(t)
	rapid.Check(t, func(r *rapid.T) {
		var failure any // a panic of rapid, which rapid must recover in its own goroutine
		synctest.Test(t, func(*testing.T) {
			defer func() { failure = recover() }()
			p := &pair{T: r, ctx: context.Background(), durations: fine, exact: true}
			if slack := fine.short.Draw(r, "slack"); slack > time.Microsecond { // a proof is completed only by calls with the same slack
				p.slack = slack
			}
			defer p.open(r, file, memoryBackend(time.Now))()
			for _, h := range p.both {
				h.exact = true
			}
			actions := p.actions()
			actions["wait"], actions["wait more"], actions["wait longer"] = p.sleep, p.sleep, p.sleep
			actions["deliver sentinels"], actions["deliver sentinels again"] = p.deliverSentinels, p.deliverSentinels
			actions["lose"], actions["unticket lost again"] = p.lose, p.unticketLost
			actions["interrupt"] = p.interrupt
			actions["insert deliveries"] = func(t *rapid.T) { p.insertOf(t, rapid.Just(holdfast.TypeHTTP)) }
			actions["release more"], actions["report more targets"] = p.releaseBlocked, p.reportTargets
			if names := rapid.SampledFrom(actionSets).Draw(r, "actions"); names != nil {
				maps.DeleteFunc(actions, func(name string, _ func(*rapid.T)) bool { return !slices.Contains(names, name) })
			}
			r.Repeat(actions)
		})
		if fmt.Sprintf("%T", failure) == "rapid.invalidData" {
			// rapid identifies a failure by its line while it shortens a sequence. So a failure and the end of the
			// drawn data have separate lines.
			panic(failure)
		}
		if failure != nil {
			panic(failure)
		}
	})
}

// actionSets has the actions of sequences that explore one part of the contract. nil means all actions.
var actionSets = [][]string{
	nil,
	{
		"", "wait", "insert", "register worker", "claim", "apply", "apply more", "apply another", "park", "dispatch due",
		"dispatch outbox",
	},
	{
		"", "wait", "insert", "register worker", "renew", "claim", "claim more", "claim the rest", "apply", "dispatch due", "pause", "resume", "block",
		"release", "park", "interrupt",
	},
	{
		"", "wait", "insert", "register worker", "claim", "block refused", "apply", "apply more", "apply another", "dispatch due", "pause", "resume",
		"release", "set limit", "unset limit", "interrupt",
	},
	{
		"", "wait", "insert deliveries", "register worker", "claim", "block refused", "apply", "apply more", "dispatch due", "pause", "resume", "release",
		"release more", "set limit", "report targets", "report more targets", "interrupt",
	},
	{
		"", "wait", "wait more", "insert", "register worker", "claim", "apply", "apply more", "apply another", "dispatch due",
		"dispatch outbox", "delete outbox", "deliver sentinels", "deliver sentinels again", "lose", "interrupt",
		"unticket lost", "unticket lost again",
	},
}

// fine draws durations that are often equal to limits in the stores and to each other.
var fine = durations{
	waits:  rapid.SampledFrom([]time.Duration{0, 0, 1, time.Second, 10 * time.Second, time.Hour}),
	short:  rapid.SampledFrom([]time.Duration{1, time.Microsecond, time.Second, 3 * time.Second, 10 * time.Second, time.Minute, time.Hour}),
	leases: rapid.SampledFrom([]time.Duration{1, time.Microsecond, time.Second, time.Minute, time.Hour, 100 * time.Hour, 100 * time.Hour}),
	ages:   rapid.SampledFrom([]time.Duration{0, 0, 1, time.Second, time.Minute, time.Hour}),
}

// sleep waits for a random time.
func (p *pair) sleep(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{
		1, time.Microsecond, time.Second, time.Second, 3*time.Second - time.Microsecond, 3 * time.Second,
		10*time.Second - time.Microsecond, 10 * time.Second, 10*time.Second + time.Microsecond, time.Minute, 10 * time.Minute, time.Hour,
	}).Draw(t, "time"))
}

// deliverSentinels sends a sentinel of every queue and records at once that it was delivered.
func (p *pair) deliverSentinels(*rapid.T) {
	p.check("deliver sentinels", func(h *handle, _ int) (string, error) {
		sentinels, err := h.SentinelsDue(p.ctx, 0, 0)
		for _, s := range sentinels {
			if err == nil {
				err = h.Drained(p.ctx, s)
			}
		}
		return "", err
	})
}

// lose marks all due tasks as ticketed and deletes all outbox entries, as if every ticket were published and lost.
func (p *pair) lose(*rapid.T) {
	p.check("lose", func(h *handle, _ int) (string, error) {
		if err := h.DeleteOutbox(p.ctx, h.entries); err != nil {
			return "", err
		}
		result, err := h.DispatchDue(p.ctx, store.Queues{}, 1000, func(_ context.Context, due []store.Due) []bool {
			return slices.Repeat([]bool{true}, len(due))
		})
		return fmt.Sprint(result), err
	})
}

// interrupt registers a worker that claims every task it can and hands all of them back.
func (p *pair) interrupt(*rapid.T) {
	p.check("interrupt", func(h *handle, _ int) (string, error) {
		worker, err := h.RegisterWorker(p.ctx, store.WorkerInfo{Name: "w", Concurrency: 1}, time.Second)
		if err != nil {
			return "", err
		}
		h.workers = append(h.workers, worker)
		tickets := make([]message.Ticket, len(h.tasks))
		for i := range tickets {
			tickets[i] = message.Ticket{Task: h.tasks[i], Attempt: p.rows[i].Attempt}
		}
		claims, err := h.Claim(p.ctx, worker, store.AnyOf("one", "two", "x.y/z"), tickets, store.IntoExecutors)
		var moves []holdfast.Transition
		for _, claim := range claims {
			if claim.Verdict != store.Claimed {
				continue
			}
			if move, err := holdfast.Settle(*claim.Task, holdfast.Interrupted(nil), h.now, holdfast.DefaultPolicy()); err == nil {
				moves = append(moves, move)
			}
		}
		if err != nil {
			return "", err
		}
		accepted, err := h.Apply(p.ctx, moves)
		return fmt.Sprint(accepted), err
	})
}

// meanwhile draws a call of another process during a publish, for the tasks that are being published.
func (p *pair) meanwhile(t *rapid.T) func(*handle, []store.Due) string {
	if !p.exact {
		return func(*handle, []store.Due) string { return "" }
	}
	worker, call := p.drawWorker(t), rapid.IntRange(0, 5).Draw(t, "meanwhile")
	return func(h *handle, due []store.Due) string {
		first := []message.Ticket{due[0].Ticket}
		switch call {
		case 0:
			claims, err := h.Claim(p.ctx, h.workerID(worker), store.AnyOf("one", "two", "x.y/z"), first, store.IntoExecutors)
			if err != nil {
				return kindOf(err)
			}
			return fmt.Sprint(claims[0].Verdict)
		case 1:
			return fmt.Sprint(h.Park(p.ctx, first, 0, "meanwhile"))
		case 2:
			return fmt.Sprint(h.Unticket(p.ctx, first))
		case 3:
			result, err := h.DispatchDue(p.ctx, store.Queues{}, 2, func(_ context.Context, due []store.Due) []bool { return make([]bool, len(due)) })
			return fmt.Sprint(result, err)
		}
		return ""
	}
}
