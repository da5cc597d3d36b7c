package storetest_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

var (
	queues = rapid.SampledFrom([]string{"default", "a", "b-1"})
	// priorities draws the priority of a new task. Most are normal, so that tasks share a subqueue.
	priorities = rapid.SampledFrom(append(holdfast.Priorities(), holdfast.PriorityNormal, holdfast.PriorityNormal, holdfast.PriorityNormal))
	types      = rapid.SampledFrom([]string{"one", "two", "x.y/z", "http"})
	dirty      = rapid.SampledFrom([]string{"", "plain", "Ärger mit Straße", "100% _ \\ '\"", "nul\x00in it", "bad \xff byte", "\u2028\U0001F600<&>", strings.Repeat("long ", 300)})
	payloads   = rapid.SampledFrom([]string{
		"", "null", `{"a":1}`, ` {"b" : [1, 2.50e3] , "b":2} `, `"\u0000\ud83d\ude00 <&>"`, "\"\u2028\"", "12345678901234567890.123456789",
		`"` + strings.Repeat("x", 1020) + `"`, `"` + strings.Repeat("x", 1021) + `"`, `"` + strings.Repeat("y", 1022) + `"`, `["` + strings.Repeat("ä", 4000) + `"]`,
	})
	deliveries = rapid.SampledFrom([]string{
		`{"url":"https://t.example/1"}`, `{"url":"https://t.example/1"}`, `{"url":"HTTPS://T.example:443"}`, `{"url":"http://t.example/"}`, `{"url":1}`, `{}`,
	})
	limits = rapid.SampledFrom([]int{0, 1, 1000})
	shares = rapid.Uint64()
)

// durations draws the durations of a sequence of calls.
type durations struct {
	waits, short, leases, ages *rapid.Generator[time.Duration]
}

// coarse has durations that end at once, or not during a sequence.
var coarse = durations{
	waits:  rapid.SampledFrom([]time.Duration{0, time.Hour}),
	short:  rapid.SampledFrom([]time.Duration{1, time.Microsecond, time.Hour}),
	leases: rapid.SampledFrom([]time.Duration{1, time.Microsecond, time.Hour, time.Hour, time.Hour, time.Hour}),
	ages:   rapid.SampledFrom([]time.Duration{0, 0, 1, time.Hour}),
}

// drawTask draws the index of a task in p.rows, or -1 for a task that does not exist.
func (p *pair) drawTask(t *rapid.T) int {
	return rapid.IntRange(-1, len(p.rows)-1).Draw(t, "task")
}

// drawWorker draws the index of a worker, or -1 for a worker that does not exist.
func (p *pair) drawWorker(t *rapid.T) int {
	return rapid.IntRange(-1, len(p.both[0].workers)-1).Draw(t, "worker")
}

// drawTickets draws tickets. Their tasks are indexes, and most of them have the current attempt of the task.
func (p *pair) drawTickets(t *rapid.T) []message.Ticket {
	var tickets []message.Ticket
	for range rapid.IntRange(0, 5).Draw(t, "tickets") {
		index, attempt := p.drawTask(t), 1
		if index >= 0 {
			attempt = p.rows[index].Attempt
		}
		attempt += rapid.SampledFrom([]int{0, 0, 0, 0, -1, 1}).Draw(t, "off")
		tickets = append(tickets, message.Ticket{Task: holdfast.TaskID(index), Attempt: attempt})
	}
	return tickets
}

func (p *pair) insert(t *rapid.T) { p.insertOf(t, types) }

func (p *pair) insertOf(t *rapid.T, types *rapid.Generator[string]) {
	now := time.Now()
	tasks := make([]holdfast.NewTask, rapid.IntRange(0, 4).Draw(t, "tasks"))
	for i := range tasks {
		tasks[i] = holdfast.NewTask{
			Type: types.Draw(t, "type"), Queue: queues.Draw(t, "queue"), Priority: priorities.Draw(t, "priority"), Payload: []byte(payloads.Draw(t, "payload")),
			MaxAttempts: rapid.IntRange(1, 3).Draw(t, "max attempts"),
			Unique:      rapid.SampledFrom([]string{"", "", "", "k", "K", "k ", "ключ\"\\"}).Draw(t, "unique"),
			Key:         rapid.SampledFrom([]string{"", "", "t", "ключ \""}).Draw(t, "key"),
			Tags:        rapid.SampledFrom([][]string{nil, nil, nil, {"a"}, {"a", "b"}, {"<é>"}}).Draw(t, "tags"),
			Trace:       rapid.SampledFrom([]string{"", "", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}).Draw(t, "trace"),
		}
		if tasks[i].Type == holdfast.TypeHTTP {
			tasks[i].Payload = []byte(deliveries.Draw(t, "delivery"))
		}
		switch rapid.IntRange(0, 5).Draw(t, "when") {
		case 0:
			tasks[i].Delay = rapid.SampledFrom([]time.Duration{1, time.Hour, 1<<63 - 1}).Draw(t, "delay")
		case 1:
			tasks[i].At = rapid.SampledFrom([]time.Time{
				now.Add(time.Hour), now.Add(-time.Hour), time.Unix(0, 0), time.Unix(-1, 0), time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC),
				time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC), time.Date(10000, 1, 2, 0, 0, 0, 0, time.UTC),
			}).Draw(t, "at")
		}
	}
	grace := p.waits.Draw(t, "grace")
	p.check("insert", func(h *handle, _ int) (string, error) {
		inserted, err := h.Insert(p.ctx, tasks, grace)
		if err != nil {
			return "", err
		}
		var lines []string
		for _, task := range inserted.Tasks {
			if !task.Duplicate {
				h.tasks = append(h.tasks, task.ID)
			}
		}
		for _, task := range inserted.Tasks {
			lines = append(lines, fmt.Sprintf("%s %t", h.taskName(task.ID), task.Duplicate))
		}
		slices.SortFunc(inserted.Entries, func(a, b store.OutboxEntry) int { return cmp.Compare(a.Queue, b.Queue) })
		for _, entry := range inserted.Entries {
			h.entries = append(h.entries, entry.ID)
			lines = append(lines, entry.Queue+h.formatTickets(entry.Tickets))
		}
		return fmt.Sprint(lines), nil
	})
}

func (p *pair) deleteOutbox(t *rapid.T) {
	indexes := rapid.SliceOfN(rapid.IntRange(0, 8), 0, 2).Draw(t, "outbox entries")
	p.check("delete outbox", func(h *handle, _ int) (string, error) {
		ids := []int64{}
		for _, i := range indexes {
			if i < len(h.entries) {
				ids = append(ids, h.entries[i])
			}
		}
		return "", h.DeleteOutbox(p.ctx, ids)
	})
}

func (p *pair) registerWorker(t *rapid.T) {
	info := store.WorkerInfo{Name: dirty.Draw(t, "name"), Host: dirty.Draw(t, "host"), PID: 7, Version: dirty.Draw(t, "version"), Concurrency: 4,
		Queues: rapid.SampledFrom([][]string{nil, {"default"}, {"c", "a"}, {"a", "a"}}).Draw(t, "queues")}
	lease := p.leases.Draw(t, "lease")
	p.check("register worker", func(h *handle, _ int) (string, error) {
		worker, err := h.RegisterWorker(p.ctx, info, lease)
		if err == nil {
			h.workers = append(h.workers, worker)
		}
		return "", err
	})
}

func (p *pair) renew(t *rapid.T) {
	worker, lease, n := p.drawWorker(t), p.leases.Draw(t, "lease"), rapid.Int64Range(0, 9).Draw(t, "cursor")
	p.check("renew", func(h *handle, _ int) (string, error) {
		result, err := h.Renew(p.ctx, store.Renewal{Worker: h.workerID(worker), Lease: lease, Taken: n, Settled: n / 2, Running: int(n)})
		return fmt.Sprint(h.formatTickets(result.Cancelled), result.Draining, result.Queues, result.Paused), err
	})
}

func (p *pair) held(t *rapid.T) {
	worker := p.drawWorker(t)
	p.check("held", func(h *handle, _ int) (string, error) {
		tasks, err := h.Held(p.ctx, h.workerID(worker), 0, math.MaxInt64)
		slices.SortFunc(tasks, func(a, b holdfast.Task) int { return cmp.Compare(a.ID, b.ID) })
		return h.formatTasks(tasks), err
	})
}

func (p *pair) deregisterWorker(t *rapid.T) {
	worker := p.drawWorker(t)
	if rapid.IntRange(0, 2).Draw(t, "deregister") > 0 { // otherwise few workers live long enough to receive cancellations
		return
	}
	p.check("deregister worker", func(h *handle, _ int) (string, error) {
		return "", h.DeregisterWorker(p.ctx, h.workerID(worker), false)
	})
}

func (p *pair) drain(t *rapid.T) {
	worker := p.drawWorker(t)
	p.check("drain", func(h *handle, _ int) (string, error) { return "", h.Drain(p.ctx, h.workerID(worker)) })
}

func (p *pair) claim(t *rapid.T) {
	worker, tickets := p.drawWorker(t), p.drawTickets(t)
	kinds := rapid.SampledFrom([][]string{{"one", "two", "x.y/z", "http"}, {"one", "two", "x.y/z", "http"}, {"one"}, {}, {"ONE", "x.y"}}).Draw(t, "types")
	into := rapid.SampledFrom([]store.Place{store.IntoExecutors, store.IntoBuffer}).Draw(t, "into")
	p.check(fmt.Sprint("claim ", worker, kinds, tickets, into), func(h *handle, _ int) (string, error) {
		claims, err := h.Claim(p.ctx, h.workerID(worker), store.AnyOf(kinds...), h.tickets(tickets), into)
		text := ""
		for _, c := range claims {
			var task holdfast.Task
			if c.Task != nil {
				task = *c.Task
			}
			text += fmt.Sprintf("\n   %d %s probe=%t owner=%s gate=%s now=%s", c.Verdict, h.formatTask(task), c.Probe, h.workerName(c.Owner), h.gateName(c.Gate), h.formatTime(c.Now))
		}
		return text, err
	})
}

var causes = map[holdfast.Event]error{
	holdfast.EventComplete: nil,
	holdfast.EventRetry:    errors.New("FAILED with Ärger"),
	holdfast.EventDefer:    holdfast.Defer(time.Hour, errors.New("busy")),
	holdfast.EventGiveUp:   holdfast.Permanent(errors.New("100% hopeless_")),
}

// drawTransition draws a transition that is allowed in the current state of its task. If there is none, ok is false.
func (p *pair) drawTransition(t *rapid.T) (moves [2]holdfast.Transition, ok bool) {
	index := p.drawTask(t)
	if index < 0 {
		return moves, false
	}
	event := rapid.SampledFrom([]holdfast.Event{
		holdfast.EventComplete, holdfast.EventRetry, holdfast.EventDefer, holdfast.EventGiveUp, holdfast.EventInterrupt, holdfast.EventCrash,
		holdfast.EventRequeue, holdfast.EventCancel, holdfast.EventCancel, holdfast.EventArchive, holdfast.EventRestore,
	}).Draw(t, "event")
	wait := p.waits.Draw(t, "wait")
	report := holdfast.Report{}
	if rapid.IntRange(0, 3).Draw(t, "report") == 0 {
		report = holdfast.Report{Class: dirty.Draw(t, "class"), Error: dirty.Draw(t, "error"), Stack: dirty.Draw(t, "stack"), Details: []byte(dirty.Draw(t, "details"))}
	}
	for i, h := range p.both {
		row := p.rows[index]
		row.ID = h.id(index)
		if row.Worker != 0 {
			row.Worker = h.workerID(slices.Index(p.both[0].workers, row.Worker))
		}
		cause := holdfast.Requested(event)
		switch event {
		case holdfast.EventInterrupt:
			cause = holdfast.Interrupted(errors.New("stop"))
		case holdfast.EventCrash:
			cause = holdfast.Crashed(7)
		default:
			if err, known := causes[event]; known {
				cause = holdfast.Returned(err)
			}
		}
		move, err := holdfast.Settle(row, cause, row.CreatedAt, holdfast.DefaultPolicy())
		if err != nil {
			return moves, false
		}
		if move.To == holdfast.Ready {
			move.Wait = wait
		}
		if report.Error != "" {
			move.Report, move.Recorded = report, true
		}
		moves[i] = move
	}
	return moves, true
}

func (p *pair) apply(t *rapid.T) {
	var moves [][2]holdfast.Transition
	for range rapid.IntRange(1, 4).Draw(t, "moves") {
		if both, ok := p.drawTransition(t); ok {
			moves = append(moves, both)
		}
	}
	if len(moves) > 0 {
		p.earlier = append(p.earlier, moves[0])
	}
	p.applyAll(moves)
}

func (p *pair) applyLate(t *rapid.T) {
	if len(p.earlier) == 0 {
		return
	}
	moves := rapid.SliceOfN(rapid.SampledFrom(p.earlier), 1, 3).Draw(t, "moves")
	p.applyAll(moves)
}

func (p *pair) applyAll(moves [][2]holdfast.Transition) {
	text := ""
	for _, both := range moves {
		text += fmt.Sprintf(" %s %s", both[0].Event, p.both[0].taskName(both[0].Task))
	}
	p.check("apply"+text, func(h *handle, i int) (string, error) {
		own := make([]holdfast.Transition, len(moves))
		for n, both := range moves {
			own[n] = both[i]
		}
		accepted, err := h.Apply(p.ctx, own)
		return fmt.Sprint(accepted), err
	})
}

func (p *pair) passedOn(t *rapid.T) {
	tickets := p.drawTickets(t)
	p.check("passed on", func(h *handle, _ int) (string, error) { return "", h.PassedOn(p.ctx, h.tickets(tickets)) })
}

func (p *pair) park(t *rapid.T) {
	tickets, why, wait := p.drawTickets(t), dirty.Draw(t, "why"), time.Hour
	if p.exact {
		wait = p.short.Draw(t, "wait")
	}
	p.check("park", func(h *handle, _ int) (string, error) { return "", h.Park(p.ctx, h.tickets(tickets), wait, why) })
}
