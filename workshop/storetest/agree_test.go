package storetest_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// TestMain limits the number of random sequences. With the race detector, the default number takes most of a minute.
func TestMain(m *testing.M) {
	slow.Checks(15, 40)
	m.Run()
}

// TestStoresAgree checks that PostgreSQL and SQLite return the same results.
func TestStoresAgree(t *testing.T) {
	t.Parallel()
	agree(t, postgresBackend(t), sqliteBackend(t))
}

// TestTheStoreInMemoryAgrees checks that the store in memory behaves like a database.
func TestTheStoreInMemoryAgrees(t *testing.T) {
	t.Parallel()
	agree(t, sqliteBackend(t), memoryBackend(ticking()))
}

// agree makes the same random sequence of calls to two stores and compares every result. Ids and clocks differ between
// the stores. So it compares tasks, workers and outbox entries by the order in which they were created. It compares
// times only by whether they are zero, past or soon, or far in the future. Therefore every wait is zero or an hour, and
// a sequence ends before a row that was deferred for three seconds is due.
func agree(t *testing.T, a, b backend) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		p := &pair{T: t, ctx: context.Background(), began: time.Now(), durations: coarse}
		defer p.open(t, a, b)()
		t.Repeat(p.actions())
	})
}

func (p *pair) open(t *rapid.T, backends ...backend) (closed func()) {
	for i, b := range backends {
		p.both[i] = &handle{Store: b.open(t), name: b.name}
	}
	return func() {
		for _, h := range p.both {
			_ = h.Close()
		}
	}
}

func (p *pair) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"insert": p.insert, "delete outbox": p.deleteOutbox,
		"register worker": p.registerWorker, "renew": p.renew, "deregister worker": p.deregisterWorker, "drain": p.drain, "held": p.held,
		"claim": p.claim, "apply": p.apply, "apply late": p.applyLate, "park": p.park, "passed on": p.passedOn, "drained": p.drained,
		"fence": p.fence, "abandoned": p.abandoned,
		"dispatch due": p.dispatchDue, "dispatch outbox": p.dispatchOutbox,
		"unticket": p.unticket, "unticket queue": p.unticketQueue, "unticket lost": p.unticketLost,
		"keep sentinels": p.keepSentinels, "sentinels due": p.sentinelsDue, "turn": p.turn, "prune": p.prune,
		"pause": p.pause, "resume": p.resume, "resume gate": p.resumeGate, "block": p.block, "release": p.releaseBlocked,
		"set limit": p.setLimit, "unset limit": p.unsetLimit, "report targets": p.reportTargets, "block refused": p.blockRefused,
		"correct times": p.correctTimes,
		"list":          p.list, "count": p.count,
		// These actions appear several times, so that sequences reach more states.
		"insert more": p.insert, "register another worker": p.registerWorker, "renew more": p.renew, "claim more": p.claim, "claim the rest": p.claim, "apply more": p.apply, "apply another": p.apply,
		"": p.compare,
	}
}

// pair has the two stores of one sequence of calls.
type pair struct {
	*rapid.T
	ctx     context.Context
	began   time.Time
	both    [2]*handle
	rows    []holdfast.Task // the tasks at the latest comparison, from the first store, by index
	earlier [][2]holdfast.Transition
	sent    [][2]message.Sentinel
	steps   int
	durations
	pruned bool          // rows may have been pruned
	slack  time.Duration // slack of all calls of the sequence; 0 means that each call draws its own
	exact  bool          // both stores have the same clock, which does not advance during a call
}

// handle is one of the two stores, with the ids that it assigned, in the order of creation.
type handle struct {
	desk.Store
	name    string
	exact   bool
	tasks   []holdfast.TaskID
	workers []holdfast.WorkerID
	entries []int64
	gates   []store.ID
	now     time.Time
}

// maxDuration limits a sequence, because a row that was deferred is due after three seconds.
const maxDuration = 2 * time.Second

// timeUp reports whether the sequence must end.
func (p *pair) timeUp() bool { return !p.exact && time.Since(p.began) > maxDuration }

// check compares the results of f for the two stores.
func (p *pair) check(what string, f func(*handle, int) (string, error)) {
	p.Helper()
	if p.timeUp() {
		return
	}
	var results [2]string
	for i, h := range p.both {
		var err error
		if h.now, err = h.Now(p.ctx); err != nil {
			p.Fatalf("%s: now: %v", what, err)
		}
		result, err := f(h, i)
		if err != nil {
			result = "error: " + kindOf(err)
			if strings.HasSuffix(result, "?") {
				result += " " + err.Error()
			}
		}
		results[i] = result
	}
	if !p.timeUp() && results[0] != results[1] {
		p.Fatalf("%s\n %10s: %s\n %10s: %s", what, p.both[0].name, results[0], p.both[1].name, results[1])
	}
}

func kindOf(err error) string {
	for name, kind := range map[string]error{
		"fenced": store.ErrFenced, "not found": holdfast.ErrNotFound, "conflict": holdfast.ErrConflict,
		"invalid": holdfast.ErrInvalid, "unavailable": holdfast.ErrUnavailable,
	} {
		if errors.Is(err, kind) {
			return name
		}
	}
	return "?"
}

func (h *handle) id(index int) holdfast.TaskID {
	if index < 0 || index >= len(h.tasks) {
		return 1 << 40
	}
	return h.tasks[index]
}

func (h *handle) workerID(index int) holdfast.WorkerID {
	if index < 0 || index >= len(h.workers) {
		return 1 << 40
	}
	return h.workers[index]
}

func (h *handle) tickets(tickets []message.Ticket) []message.Ticket {
	own := make([]message.Ticket, len(tickets))
	for i, ticket := range tickets {
		own[i] = message.Ticket{Task: h.id(int(ticket.Task)), Attempt: ticket.Attempt}
	}
	return own
}

func (h *handle) formatTickets(tickets []message.Ticket) string {
	lines := make([]string, len(tickets))
	for i, ticket := range tickets {
		lines[i] = fmt.Sprintf("%s/%d", h.taskName(ticket.Task), ticket.Attempt)
	}
	slices.Sort(lines)
	return fmt.Sprint(lines)
}

func (h *handle) taskName(id holdfast.TaskID) string {
	if id == 0 {
		return "-"
	}
	return fmt.Sprintf("#%d", slices.Index(h.tasks, id))
}

func (h *handle) workerName(id holdfast.WorkerID) string {
	if id == 0 {
		return "-"
	}
	return fmt.Sprintf("w%d", slices.Index(h.workers, id))
}

func (h *handle) formatTime(t time.Time) string {
	switch {
	case t.IsZero():
		return "never"
	case t.Location() != time.UTC:
		return "not UTC"
	case h.exact:
		return t.Format(time.RFC3339Nano)
	case t.After(h.now.Add(20 * time.Minute)):
		return "future"
	}
	return "past or soon"
}

// formatDuration returns the part of a duration that must be equal in both stores: all of it if their clocks are the
// same, and otherwise only whether it is positive.
func (h *handle) formatDuration(d time.Duration) string {
	if h.exact {
		return d.String()
	}
	return fmt.Sprint(d > 0)
}

func (h *handle) formatTask(t holdfast.Task) string {
	return fmt.Sprintf("{%s %s %s %s payload=%q nil=%t unique=%q key=%q %d/%d f%d c%d d%d %s next=%s created=%s started=%s finished=%s error=%q parked=%q tags=%q trace=%q buffered=%t}",
		h.taskName(t.ID), t.Type, t.Subqueue(), t.State, clipped(t.Payload), t.Payload == nil, t.Unique, t.Key, t.Attempt, t.MaxAttempts, t.Failures, t.Crashes, t.Deferrals,
		h.workerName(t.Worker), h.formatTime(t.NextRunAt), h.formatTime(t.CreatedAt), h.formatTime(t.StartedAt), h.formatTime(t.FinishedAt), t.LastError, t.Parked, t.Tags, t.Trace, t.Buffered)
}

func (h *handle) formatTasks(tasks []holdfast.Task) string {
	lines := make([]string, len(tasks))
	for i, task := range tasks {
		lines[i] = h.formatTask(task)
	}
	return strings.Join(lines, "\n   ")
}

func clipped(payload []byte) string {
	if len(payload) > 60 {
		return fmt.Sprintf("%s... %d", payload[:60], len(payload))
	}
	return string(payload)
}

// compare compares all data of the stores.
func (p *pair) compare(*rapid.T) {
	p.steps++
	p.check("all tasks", func(h *handle, i int) (string, error) {
		tasks, err := h.TasksByID(p.ctx, h.tasks)
		slices.SortFunc(tasks, func(a, b holdfast.Task) int { return cmp.Compare(a.ID, b.ID) })
		if i == 0 {
			p.rows = make([]holdfast.Task, len(h.tasks))
			for n := range p.rows {
				p.rows[n] = holdfast.Task{ID: h.tasks[n], Attempt: 1}
			}
			for _, task := range tasks {
				p.rows[slices.Index(h.tasks, task.ID)] = task
			}
		}
		return h.formatTasks(tasks), err
	})
	p.check("positions", func(h *handle, _ int) (string, error) {
		tickets := make([]message.Ticket, len(h.tasks))
		for i, id := range h.tasks {
			tickets[i].Task = id
		}
		positions, err := h.Positions(p.ctx, append(tickets, message.Ticket{Task: 1 << 40}))
		text := ""
		for _, at := range positions {
			text += fmt.Sprintf("{%t %s %d %s %s %t}", at.Found, at.State, at.Attempt, h.workerName(at.Worker), at.WorkerState, at.Ticketed)
		}
		return text, err
	})
	p.check("queues", func(h *handle, _ int) (string, error) {
		queues, err := h.Queues(p.ctx)
		text := ""
		for _, q := range queues {
			text += fmt.Sprintf("{%s %d %d %d old=%s %s}", q.Name, q.Ready, q.Due, q.Running, h.formatDuration(q.OldestDue), h.formatTime(q.DrainedAt))
		}
		return text, err
	})
	p.check("workers", func(h *handle, _ int) (string, error) {
		workers, err := h.Workers(p.ctx, p.steps%2 == 0)
		text := ""
		for _, v := range workers {
			text += fmt.Sprintf("{%s %q %q %d %q %d %v %s %t %s %s %s %s %d %d %d}", h.workerName(v.ID), v.Name, v.Host, v.PID, v.Version, v.Concurrency,
				slices.Concat(v.Queues), v.State, v.Draining, h.formatTime(v.StartedAt), h.formatTime(v.RenewedAt), h.formatTime(v.LeaseUntil),
				h.formatTime(v.EndedAt), v.Taken, v.Settled, v.Running)
		}
		return text, err
	})
	p.check("worker states", func(h *handle, _ int) (string, error) {
		states, err := h.WorkerStates(p.ctx, append(slices.Clone(h.workers), 1<<40))
		text := ""
		for _, worker := range h.workers {
			text += fmt.Sprintf("%v", states[worker])
		}
		return fmt.Sprint(len(states), text), err
	})
	p.compareGates()
	p.compareLimits()
	if p.steps%4 != 0 {
		return
	}
	for index := -1; index < len(p.both[0].tasks); index++ {
		p.check(fmt.Sprintf("task #%d", index), func(h *handle, _ int) (string, error) {
			task, err := h.Task(p.ctx, h.id(index))
			return h.formatTask(task), err
		})
		p.check(fmt.Sprintf("attempts of #%d", index), func(h *handle, _ int) (string, error) {
			attempts, err := h.Attempts(p.ctx, h.id(index))
			lines := []string{}
			for _, a := range attempts {
				lines = append(lines, fmt.Sprintf("{%s %d %s %s %q %s %s %q %q %q %q}", h.taskName(a.Task), a.Attempt, a.Event, h.workerName(a.Worker), a.WorkerName,
					h.formatTime(a.StartedAt), h.formatTime(a.FinishedAt), a.Class, a.Error, a.Stack, bytes.TrimSpace(a.Details)))
			}
			slices.Sort(lines)
			return strings.Join(lines, "\n   "), err
		})
	}
}
