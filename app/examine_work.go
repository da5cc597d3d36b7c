package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

const (
	// dueLong is for how long a task may be due before somebody should have taken it.
	dueLong = 10 * time.Second
	// receiptsOld is an age that no receipt reaches while a janitor works.
	receiptsOld = time.Minute
	// turnsLate is how long ago the last turn of a janitor may be: they take one every half minute.
	turnsLate = 2 * time.Minute
	// setbackShown is how long the doctor shows a restore.
	setbackShown = 24 * time.Hour
)

// examineWork looks whether work gets done.
func (e *examiner) examineWork(ctx context.Context) {
	now, err := e.Store.Now(ctx)
	var runs []store.Run
	if err == nil {
		runs, err = e.Store.Runs(ctx, false)
	}
	var lanes []store.Lane
	if err == nil {
		lanes, err = e.Store.Lanes(ctx)
	}
	if err != nil {
		e.failed("work", err, "")
		return
	}
	alive := slices.DeleteFunc(slices.Clone(runs), func(r store.Run) bool { return r.LeaseUntil.Before(now) })
	e.examineWorkers(alive, lanes)
	e.examineJanitors(ctx, now, lanes, len(runs)-len(alive))
	e.examineLanes(ctx, alive, lanes)
	e.examineDeadLetters(ctx)
}

// waiting describes what is due for long; "" if nothing is.
func waiting(lanes []store.Lane) string {
	due, oldest := int64(0), time.Duration(0)
	for _, lane := range lanes {
		if lane.OldestDue > dueLong {
			due, oldest = due+lane.Due, max(oldest, lane.OldestDue)
		}
	}
	if due == 0 {
		return ""
	}
	return fmt.Sprintf("%s due, the first for %s", counted(due, "task is", "tasks are"), oldest.Round(time.Second))
}

func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (e *examiner) examineWorkers(alive []store.Run, lanes []store.Lane) {
	if len(alive) > 0 {
		running, places := 0, 0
		for _, r := range alive {
			running, places = running+r.Running, places+r.Concurrency
		}
		e.ok("workers", "%s: %d of %d handlers are busy", counted(int64(len(alive)), "lives", "live"), running, places)
		return
	}
	f := holdfast.Finding{Check: "workers", Grade: holdfast.GradeWarning, Detail: "none lives", Remedy: "start one: holdfast serve"}
	if text := waiting(lanes); text != "" {
		f.Grade, f.Detail = holdfast.GradeFailed, "none lives, and "+text
	}
	e.add(f)
}

// examineJanitors judges them by what they leave undone. unfenced counts live runs whose lease is over.
func (e *examiner) examineJanitors(ctx context.Context, now time.Time, lanes []store.Lane, unfenced int) {
	examinable, ok := e.Store.(store.Examiner)
	if !ok {
		e.skipped("janitors", "this store does not tell")
		return
	}
	signs, err := examinable.Signs(ctx, receiptsOld)
	if err != nil {
		e.failed("janitors", err, "")
		return
	}
	f := holdfast.Finding{Check: "janitors", Grade: holdfast.GradeOK, Detail: "the process that serves the file is one"}
	if e.file == nil {
		f.Detail = fmt.Sprintf("one was at work %s ago", signs.Turned.Round(time.Second))
	}
	if late := signs.Turned < 0 || signs.Turned > turnsLate; late && (e.file == nil || !e.answers) {
		f.Grade, f.Detail = holdfast.GradeWarning, "none is at work"
		f.Remedy = "start one, holdfast serve with the role janitor: without it nothing is retried or handed back"
		if text := waiting(lanes); text != "" {
			f.Grade, f.Detail = holdfast.GradeFailed, "none is at work, and "+text
		} else if unfenced > 0 {
			f.Grade, f.Detail = holdfast.GradeFailed, fmt.Sprintf("none is at work, and %s not been fenced", counted(int64(unfenced), "worker that is gone has", "workers that are gone have"))
		}
	}
	e.add(f)
	e.examineSetback(now, signs.SetBack)
	if signs.Receipts > 0 {
		e.add(holdfast.Finding{Check: "receipts", Grade: holdfast.GradeFailed,
			Detail: fmt.Sprintf("%s not announced, the first for %s", counted(signs.Receipts, "batch of tasks was", "batches of tasks were"), signs.Oldest.Round(time.Second)),
			Remedy: "see what the janitors log: they publish these as soon as the broker takes them"})
		return
	}
	e.ok("receipts", "no stored task waits to be announced for more than %s", receiptsOld)
}

// examineSetback reports a restore, or another loss of commits, while workers lived.
func (e *examiner) examineSetback(now, last time.Time) {
	ago := now.Sub(last)
	if last.IsZero() || ago > setbackShown {
		e.ok("restore", "no worker has found that the store lost commits in the last %s", setbackShown)
		return
	}
	e.add(holdfast.Finding{Check: "restore", Grade: holdfast.GradeWarning,
		Detail: fmt.Sprintf("%s ago a worker found that the store had lost its newest renewal: a backup was restored while workers ran, or a failover lost commits", ago.Round(time.Second)),
		Remedy: "restart every worker that has run since before that, so that tasks it finished meanwhile run again; see Backup and retention in docs/operations.md"})
}

// examineLanes looks for tasks that are due and taken by nobody.
func (e *examiner) examineLanes(ctx context.Context, alive []store.Run, lanes []store.Lane) {
	before := len(e.Findings)
	for _, lane := range lanes {
		if lane.OldestDue <= dueLong {
			continue
		}
		detail := fmt.Sprintf("%s: %s, the first for %s, and ", lane.Name, counted(lane.Due, "task is due", "tasks are due"), lane.OldestDue.Round(time.Second))
		switch takers := takers(alive, lane.Name); {
		case len(takers) == 0:
			e.add(holdfast.Finding{Check: "lanes", Grade: holdfast.GradeFailed, Detail: detail + "no live worker takes this lane",
				Remedy: "start one that does: holdfast serve --lanes " + lane.Name})
		case e.unconsumed(ctx, lane.Name):
			e.add(holdfast.Finding{Check: "lanes", Grade: holdfast.GradeFailed, Detail: detail + "its queue has no consumer, although " + strings.Join(takers, ", ") + " should be one",
				Remedy: "ask /healthz/ready of that worker why"})
		}
	}
	if len(e.Findings) == before {
		e.ok("lanes", "every lane with tasks that are due has a worker")
	}
}

func takers(alive []store.Run, lane string) (names []string) {
	for _, r := range alive {
		if !r.Draining && (len(r.Lanes) == 0 || slices.Contains(r.Lanes, lane)) {
			names = append(names, r.Name)
		}
	}
	return names
}

// unconsumed reports whether the broker says that nobody receives from a lane's queue.
func (e *examiner) unconsumed(ctx context.Context, lane string) bool {
	if e.file != nil || !e.answers {
		return false
	}
	queue := e.Topology.Main(lane)
	depths, err := e.Broker.Depths(ctx, []string{queue})
	depth, exists := depths[queue]
	return err == nil && exists && depth.Consumers == 0
}

// examineDeadLetters looks into the queues that should be empty.
func (e *examiner) examineDeadLetters(ctx context.Context) {
	if e.file != nil || !e.answers {
		e.skipped("dead letters", "only the broker knows, and it cannot be asked from here")
		return
	}
	rescue, quarantine := e.Topology.Rescue(), e.Topology.Quarantine()
	depths, err := e.Broker.Depths(ctx, []string{rescue, quarantine})
	if err != nil {
		e.failed("dead letters", err, "")
		return
	}
	before := len(e.Findings)
	if n := depths[rescue].Ready; n > 0 {
		e.add(holdfast.Finding{Check: "dead letters", Grade: holdfast.GradeWarning,
			Detail: fmt.Sprintf("%s in the rescue queue, which the broker would have dropped", counted(int64(n), "message waits", "messages wait")),
			Remedy: "janitors explain them within seconds; if they stay, see what those log"})
	}
	if n := depths[quarantine].Ready; n > 0 {
		e.add(holdfast.Finding{Check: "dead letters", Grade: holdfast.GradeWarning,
			Detail: fmt.Sprintf("%s in the quarantine, malformed", counted(int64(n), "message waits", "messages wait")),
			Remedy: "look at them and purge " + quarantine + ": see docs/operations.md, Messages are in the quarantine"})
	}
	if len(e.Findings) == before {
		e.ok("dead letters", "none in the rescue queue and in the quarantine")
	}
}
