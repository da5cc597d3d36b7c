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

	"github.com/holdfastq/holdfast/internal/message"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/slow"
	"github.com/holdfastq/holdfast/store"
)

// TestMain bounds the random walks: as many as are usual take most of a minute with the race detector.
func TestMain(m *testing.M) {
	slow.Checks(15, 40)
	m.Run()
}

// TestStoresAgree shows that the two databases cannot be told apart.
func TestStoresAgree(t *testing.T) {
	t.Parallel()
	agree(t, onServer(t), inFile(t))
}

// TestTheSimulatedStoreAgrees shows that what the simulator takes for a database behaves as one.
func TestTheSimulatedStoreAgrees(t *testing.T) {
	t.Parallel()
	agree(t, inFile(t), inMemory(ticking()))
}

// agree asks two stores the same questions in the same random order, and compares
// every answer. Ids differ between them, and so do clocks: tasks, runs and receipts are compared by the
// order in which they were made, and moments by whether they are missing, over, or far ahead. So every wait is nothing or
// an hour, and a walk ends before a row that was put off for three seconds can come back.
func agree(t *testing.T, a, b contender) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		w := &pair{T: t, ctx: context.Background(), began: time.Now(), spans: coarse}
		defer w.open(t, a, b)()
		t.Repeat(w.actions())
	})
}

func (w *pair) open(t *rapid.T, contenders ...contender) (closed func()) {
	for i, c := range contenders {
		w.both[i] = &half{Store: c.open(t), name: c.name}
	}
	return func() {
		for _, h := range w.both {
			_ = h.Close()
		}
	}
}

func (w *pair) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"insert": w.insert, "discharge": w.discharge,
		"open run": w.openRun, "renew": w.renew, "close run": w.closeRun, "drain": w.drain, "held": w.held,
		"claim": w.claim, "apply": w.apply, "apply late": w.applyLate, "park": w.park, "drained": w.drained,
		"fence": w.fence, "abandoned": w.abandoned,
		"dispatch due": w.dispatchDue, "dispatch receipts": w.dispatchReceipts,
		"unticket": w.unticket, "unticket lane": w.unticketLane, "unticket lost": w.unticketLost,
		"sentinels due": w.sentinelsDue, "turn": w.turn, "prune": w.prune,
		"list": w.list, "count": w.count,
		// What leads further comes more often.
		"insert more": w.insert, "open another run": w.openRun, "renew again": w.renew, "claim more": w.claim, "claim the rest": w.claim, "apply more": w.apply, "apply another": w.apply,
		"": w.compare,
	}
}

// pair is two stores on one walk.
type pair struct {
	*rapid.T
	ctx   context.Context
	began time.Time
	both  [2]*half
	rows  []holdfast.Task // as the first one saw them last, by index
	old   [][2]holdfast.Transition
	sent  [][2]message.Sentinel
	steps int
	spans
	slack time.Duration // of one walk; 0 means a new one each time
	exact bool          // both have the same clock, which stands still while they answer
}

// half is one of them, with what it calls the things that were made.
type half struct {
	store.Store
	name     string
	exact    bool
	tasks    []holdfast.TaskID
	runs     []holdfast.RunID
	receipts []int64
	now      time.Time
}

// walk bounds a walk: a row that was put off comes back after three seconds.
const walk = 2 * time.Second

func (w *pair) over() bool { return !w.exact && time.Since(w.began) > walk }

// ask compares what f says of both.
func (w *pair) ask(what string, f func(*half, int) (string, error)) {
	w.Helper()
	if w.over() {
		return
	}
	var answers [2]string
	for i, h := range w.both {
		var err error
		if h.now, err = h.Now(w.ctx); err != nil {
			w.Fatalf("%s: now: %v", what, err)
		}
		answer, err := f(h, i)
		if err != nil {
			answer = "error: " + kindOf(err)
			if strings.HasSuffix(answer, "?") {
				answer += " " + err.Error()
			}
		}
		answers[i] = answer
	}
	if !w.over() && answers[0] != answers[1] {
		w.Fatalf("%s\n %10s: %s\n %10s: %s", what, w.both[0].name, answers[0], w.both[1].name, answers[1])
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

func (h *half) id(index int) holdfast.TaskID {
	if index < 0 || index >= len(h.tasks) {
		return 1 << 40
	}
	return h.tasks[index]
}

func (h *half) runID(index int) holdfast.RunID {
	if index < 0 || index >= len(h.runs) {
		return 1 << 40
	}
	return h.runs[index]
}

func (h *half) tickets(tickets []message.Ticket) []message.Ticket {
	own := make([]message.Ticket, len(tickets))
	for i, ticket := range tickets {
		own[i] = message.Ticket{Task: h.id(int(ticket.Task)), Attempt: ticket.Attempt}
	}
	return own
}

func (h *half) sayTickets(tickets []message.Ticket) string {
	said := make([]string, len(tickets))
	for i, ticket := range tickets {
		said[i] = fmt.Sprintf("%s/%d", h.say(ticket.Task), ticket.Attempt)
	}
	slices.Sort(said)
	return fmt.Sprint(said)
}

func (h *half) say(id holdfast.TaskID) string {
	if id == 0 {
		return "-"
	}
	return fmt.Sprintf("#%d", slices.Index(h.tasks, id))
}

func (h *half) sayRun(id holdfast.RunID) string {
	if id == 0 {
		return "-"
	}
	return fmt.Sprintf("r%d", slices.Index(h.runs, id))
}

func (h *half) when(t time.Time) string {
	switch {
	case t.IsZero():
		return "never"
	case t.Location() != time.UTC:
		return "not UTC"
	case h.exact:
		return t.Format(time.RFC3339Nano)
	case t.After(h.now.Add(20 * time.Minute)):
		return "ahead"
	}
	return "over"
}

// long says what the answers must agree on of a duration: all of it, or whether there is one.
func (h *half) long(d time.Duration) string {
	if h.exact {
		return d.String()
	}
	return fmt.Sprint(d > 0)
}

func (h *half) sayTask(t holdfast.Task) string {
	return fmt.Sprintf("{%s %s %s %s payload=%q nil=%t unique=%q %d/%d f%d c%d d%d %s next=%s created=%s started=%s finished=%s error=%q parked=%q}",
		h.say(t.ID), t.Type, t.Lane, t.State, clipped(t.Payload), t.Payload == nil, t.Unique, t.Attempt, t.MaxAttempts, t.Failures, t.Crashes, t.Deferrals,
		h.sayRun(t.Run), h.when(t.NextRunAt), h.when(t.CreatedAt), h.when(t.StartedAt), h.when(t.FinishedAt), t.LastError, t.Parked)
}

func (h *half) sayTasks(tasks []holdfast.Task) string {
	said := make([]string, len(tasks))
	for i, task := range tasks {
		said[i] = h.sayTask(task)
	}
	return strings.Join(said, "\n   ")
}

func clipped(payload []byte) string {
	if len(payload) > 60 {
		return fmt.Sprintf("%s... %d", payload[:60], len(payload))
	}
	return string(payload)
}

// compare looks at everything.
func (w *pair) compare(*rapid.T) {
	w.steps++
	w.ask("all tasks", func(h *half, i int) (string, error) {
		tasks, err := h.TasksByID(w.ctx, h.tasks)
		slices.SortFunc(tasks, func(a, b holdfast.Task) int { return cmp.Compare(a.ID, b.ID) })
		if i == 0 {
			w.rows = make([]holdfast.Task, len(h.tasks))
			for n := range w.rows {
				w.rows[n] = holdfast.Task{ID: h.tasks[n], Attempt: 1}
			}
			for _, task := range tasks {
				w.rows[slices.Index(h.tasks, task.ID)] = task
			}
		}
		return h.sayTasks(tasks), err
	})
	w.ask("positions", func(h *half, _ int) (string, error) {
		tickets := make([]message.Ticket, len(h.tasks))
		for i, id := range h.tasks {
			tickets[i].Task = id
		}
		positions, err := h.Positions(w.ctx, append(tickets, message.Ticket{Task: 1 << 40}))
		said := ""
		for _, p := range positions {
			said += fmt.Sprintf("{%t %s %d %s %s %t}", p.Found, p.State, p.Attempt, h.sayRun(p.Run), p.RunState, p.Ticketed)
		}
		return said, err
	})
	w.ask("lanes", func(h *half, _ int) (string, error) {
		lanes, err := h.Lanes(w.ctx)
		said := ""
		for _, l := range lanes {
			said += fmt.Sprintf("{%s %d %d %d old=%s %s}", l.Name, l.Ready, l.Due, l.Running, h.long(l.OldestDue), h.when(l.DrainedAt))
		}
		return said, err
	})
	w.ask("runs", func(h *half, _ int) (string, error) {
		runs, err := h.Runs(w.ctx, w.steps%2 == 0)
		said := ""
		for _, r := range runs {
			said += fmt.Sprintf("{%s %q %q %d %q %d %v %s %t %s %s %s %s %d %d %d}", h.sayRun(r.ID), r.Name, r.Host, r.PID, r.Version, r.Concurrency,
				slices.Concat(r.Lanes), r.State, r.Draining, h.when(r.StartedAt), h.when(r.RenewedAt), h.when(r.LeaseUntil), h.when(r.EndedAt), r.Taken, r.Settled, r.Running)
		}
		return said, err
	})
	w.ask("run states", func(h *half, _ int) (string, error) {
		states, err := h.RunStates(w.ctx, append(slices.Clone(h.runs), 1<<40))
		said := ""
		for _, run := range h.runs {
			said += fmt.Sprintf("%v", states[run])
		}
		return fmt.Sprint(len(states), said), err
	})
	if w.steps%4 != 0 {
		return
	}
	for index := -1; index < len(w.both[0].tasks); index++ {
		w.ask(fmt.Sprintf("task #%d", index), func(h *half, _ int) (string, error) {
			task, err := h.Task(w.ctx, h.id(index))
			return h.sayTask(task), err
		})
		w.ask(fmt.Sprintf("attempts of #%d", index), func(h *half, _ int) (string, error) {
			attempts, err := h.Attempts(w.ctx, h.id(index))
			said := []string{}
			for _, a := range attempts {
				said = append(said, fmt.Sprintf("{%s %d %s %s %q %s %s %q %q %q %q}", h.say(a.Task), a.Attempt, a.Event, h.sayRun(a.Run), a.Worker,
					h.when(a.StartedAt), h.when(a.FinishedAt), a.Class, a.Error, a.Stack, bytes.TrimSpace(a.Details)))
			}
			slices.Sort(said)
			return strings.Join(said, "\n   "), err
		})
	}
}
