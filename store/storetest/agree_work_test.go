package storetest_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var (
	lanes    = rapid.SampledFrom([]string{"default", "a", "b-1"})
	types    = rapid.SampledFrom([]string{"one", "two", "x.y/z"})
	dirty    = rapid.SampledFrom([]string{"", "plain", "Ärger mit Straße", "100% _ \\ '\"", "nul\x00in it", "bad \xff byte", "\u2028\U0001F600<&>", strings.Repeat("long ", 300)})
	payloads = rapid.SampledFrom([]string{
		"", "null", `{"a":1}`, ` {"b" : [1, 2.50e3] , "b":2} `, `"\u0000\ud83d\ude00 <&>"`, "\"\u2028\"", "12345678901234567890.123456789",
		`"` + strings.Repeat("x", 1020) + `"`, `"` + strings.Repeat("x", 1021) + `"`, `"` + strings.Repeat("y", 1022) + `"`, `["` + strings.Repeat("ä", 4000) + `"]`,
	})
	limits = rapid.SampledFrom([]int{0, 1, 1000})
	shares = rapid.Uint64()
)

// spans are how long things may take.
type spans struct {
	waits, short, leases, ages *rapid.Generator[time.Duration]
}

// coarse spans are over at once, or not in the time of a walk.
var coarse = spans{
	waits:  rapid.SampledFrom([]time.Duration{0, time.Hour}),
	short:  rapid.SampledFrom([]time.Duration{1, time.Microsecond, time.Hour}),
	leases: rapid.SampledFrom([]time.Duration{1, time.Microsecond, time.Hour, time.Hour, time.Hour, time.Hour}),
	ages:   rapid.SampledFrom([]time.Duration{0, 0, 1, time.Hour}),
}

// which draws a task by its index, now and then one that does not exist. A walk that has just ended does not know the newest.
func (w *pair) which(t *rapid.T) int {
	return rapid.IntRange(-1, len(w.rows)-1).Draw(t, "task")
}

func (w *pair) whichRun(t *rapid.T) int {
	return rapid.IntRange(-1, len(w.both[0].runs)-1).Draw(t, "run")
}

// drawTickets draws tickets whose tasks are indexes, most of them at the attempt where the task stands.
func (w *pair) drawTickets(t *rapid.T) []message.Ticket {
	var tickets []message.Ticket
	for range rapid.IntRange(0, 5).Draw(t, "tickets") {
		index, attempt := w.which(t), 1
		if index >= 0 {
			attempt = w.rows[index].Attempt
		}
		attempt += rapid.SampledFrom([]int{0, 0, 0, 0, -1, 1}).Draw(t, "off")
		tickets = append(tickets, message.Ticket{Task: holdfast.TaskID(index), Attempt: attempt})
	}
	return tickets
}

func (w *pair) insert(t *rapid.T) {
	now := time.Now()
	tasks := make([]holdfast.NewTask, rapid.IntRange(0, 4).Draw(t, "tasks"))
	for i := range tasks {
		tasks[i] = holdfast.NewTask{
			Type: types.Draw(t, "type"), Lane: lanes.Draw(t, "lane"), Payload: []byte(payloads.Draw(t, "payload")),
			MaxAttempts: rapid.IntRange(1, 3).Draw(t, "max attempts"),
			Unique:      rapid.SampledFrom([]string{"", "", "", "k", "K", "k ", "ключ\"\\"}).Draw(t, "unique"),
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
	grace := w.waits.Draw(t, "grace")
	w.ask("insert", func(h *half, _ int) (string, error) {
		inserted, err := h.Insert(w.ctx, tasks, grace)
		if err != nil {
			return "", err
		}
		var said []string
		for _, task := range inserted.Tasks {
			if !task.Duplicate {
				h.tasks = append(h.tasks, task.ID)
			}
		}
		for _, task := range inserted.Tasks {
			said = append(said, fmt.Sprintf("%s %t", h.say(task.ID), task.Duplicate))
		}
		slices.SortFunc(inserted.Receipts, func(a, b store.Receipt) int { return cmp.Compare(a.Lane, b.Lane) })
		for _, receipt := range inserted.Receipts {
			h.receipts = append(h.receipts, receipt.ID)
			said = append(said, receipt.Lane+h.sayTickets(receipt.Tickets))
		}
		return fmt.Sprint(said), nil
	})
}

func (w *pair) discharge(t *rapid.T) {
	indexes := rapid.SliceOfN(rapid.IntRange(0, 8), 0, 2).Draw(t, "receipts")
	w.ask("discharge", func(h *half, _ int) (string, error) {
		ids := []int64{}
		for _, i := range indexes {
			if i < len(h.receipts) {
				ids = append(ids, h.receipts[i])
			}
		}
		return "", h.Discharge(w.ctx, ids)
	})
}

func (w *pair) openRun(t *rapid.T) {
	info := store.RunInfo{Name: dirty.Draw(t, "name"), Host: dirty.Draw(t, "host"), PID: 7, Version: dirty.Draw(t, "version"), Concurrency: 4,
		Lanes: rapid.SampledFrom([][]string{nil, {"default"}, {"c", "a"}, {"a", "a"}}).Draw(t, "lanes")}
	lease := w.leases.Draw(t, "lease")
	w.ask("open run", func(h *half, _ int) (string, error) {
		run, err := h.OpenRun(w.ctx, info, lease)
		if err == nil {
			h.runs = append(h.runs, run)
		}
		return "", err
	})
}

func (w *pair) renew(t *rapid.T) {
	run, lease, n := w.whichRun(t), w.leases.Draw(t, "lease"), rapid.Int64Range(0, 9).Draw(t, "cursor")
	by := store.RunInfo{}
	if rapid.IntRange(0, 4).Draw(t, "by name") == 0 {
		by = store.RunInfo{Name: dirty.Draw(t, "name"), Host: dirty.Draw(t, "host"), PID: 7}
	}
	w.ask("renew", func(h *half, _ int) (string, error) {
		news, err := h.Renew(w.ctx, store.Renewal{Run: h.runID(run), By: by, Lease: lease, Taken: n, Settled: n / 2, Running: int(n)})
		return fmt.Sprint(h.sayTickets(news.Cancelled), news.Draining, news.Lanes), err
	})
}

func (w *pair) held(t *rapid.T) {
	run := w.whichRun(t)
	w.ask("held", func(h *half, _ int) (string, error) {
		tasks, err := h.Held(w.ctx, h.runID(run), 0, math.MaxInt64)
		slices.SortFunc(tasks, func(a, b holdfast.Task) int { return cmp.Compare(a.ID, b.ID) })
		return h.sayTasks(tasks), err
	})
}

func (w *pair) closeRun(t *rapid.T) {
	run := w.whichRun(t)
	if rapid.IntRange(0, 2).Draw(t, "close") > 0 { // else hardly a run lives long enough to be told something
		return
	}
	w.ask("close run", func(h *half, _ int) (string, error) { return "", h.CloseRun(w.ctx, h.runID(run), false) })
}

func (w *pair) drain(t *rapid.T) {
	run := w.whichRun(t)
	w.ask("drain", func(h *half, _ int) (string, error) { return "", h.Drain(w.ctx, h.runID(run)) })
}

func (w *pair) claim(t *rapid.T) {
	run, tickets := w.whichRun(t), w.drawTickets(t)
	kinds := rapid.SampledFrom([][]string{{"one", "two", "x.y/z"}, {"one", "two", "x.y/z"}, {"one"}, {}, {"ONE", "x.y"}}).Draw(t, "types")
	w.ask(fmt.Sprint("claim ", run, kinds, tickets), func(h *half, _ int) (string, error) {
		claims, err := h.Claim(w.ctx, h.runID(run), store.AnyOf(kinds...), h.tickets(tickets), store.IntoExecutors)
		said := ""
		for _, c := range claims {
			said += fmt.Sprintf("\n   %d %s owner=%s now=%s", c.Verdict, h.sayTask(c.Task), h.sayRun(c.Owner), h.when(c.Now))
		}
		return said, err
	})
}

var causes = map[holdfast.Event]error{
	holdfast.EventComplete: nil,
	holdfast.EventRetry:    errors.New("FAILED with Ärger"),
	holdfast.EventDefer:    holdfast.Defer(time.Hour, errors.New("busy")),
	holdfast.EventGiveUp:   holdfast.Permanent(errors.New("100% hopeless_")),
}

// judge draws a move of a task that fits where it stands.
func (w *pair) judge(t *rapid.T) (moves [2]holdfast.Transition, ok bool) {
	index := w.which(t)
	if index < 0 {
		return moves, false
	}
	event := rapid.SampledFrom([]holdfast.Event{
		holdfast.EventComplete, holdfast.EventRetry, holdfast.EventDefer, holdfast.EventGiveUp, holdfast.EventInterrupt, holdfast.EventCrash,
		holdfast.EventRequeue, holdfast.EventCancel, holdfast.EventCancel, holdfast.EventArchive, holdfast.EventRestore,
	}).Draw(t, "event")
	wait := w.waits.Draw(t, "wait")
	report := holdfast.Report{}
	if rapid.IntRange(0, 3).Draw(t, "report") == 0 {
		report = holdfast.Report{Class: dirty.Draw(t, "class"), Error: dirty.Draw(t, "error"), Stack: dirty.Draw(t, "stack"), Details: []byte(dirty.Draw(t, "details"))}
	}
	for i, h := range w.both {
		row := w.rows[index]
		row.ID = h.id(index)
		if row.Run != 0 {
			row.Run = h.runID(slices.Index(w.both[0].runs, row.Run))
		}
		cause := holdfast.Asked(event)
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
			move.Report = report
		}
		moves[i] = move
	}
	return moves, true
}

func (w *pair) apply(t *rapid.T) {
	var moves [][2]holdfast.Transition
	for range rapid.IntRange(1, 4).Draw(t, "moves") {
		if both, ok := w.judge(t); ok {
			moves = append(moves, both)
		}
	}
	if len(moves) > 0 {
		w.old = append(w.old, moves[0])
	}
	w.applyAll(moves)
}

func (w *pair) applyLate(t *rapid.T) {
	if len(w.old) == 0 {
		return
	}
	moves := rapid.SliceOfN(rapid.SampledFrom(w.old), 1, 3).Draw(t, "moves")
	w.applyAll(moves)
}

func (w *pair) applyAll(moves [][2]holdfast.Transition) {
	said := ""
	for _, both := range moves {
		said += fmt.Sprintf(" %s %s", both[0].Event, w.both[0].say(both[0].Task))
	}
	w.ask("apply"+said, func(h *half, i int) (string, error) {
		own := make([]holdfast.Transition, len(moves))
		for n, both := range moves {
			own[n] = both[i]
		}
		accepted, err := h.Apply(w.ctx, own)
		return fmt.Sprint(accepted), err
	})
}

func (w *pair) park(t *rapid.T) {
	tickets, why, wait := w.drawTickets(t), dirty.Draw(t, "why"), time.Hour
	if w.exact {
		wait = w.short.Draw(t, "wait")
	}
	w.ask("park", func(h *half, _ int) (string, error) { return "", h.Park(w.ctx, h.tickets(tickets), wait, why) })
}
