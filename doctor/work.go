package doctor

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
func (e *examination) examineWork(ctx context.Context) {
	now, err := e.store.Now(ctx)
	var runs []store.Run
	if err == nil {
		runs, err = e.store.Runs(ctx, false)
	}
	var lanes []store.Lane
	if err == nil {
		lanes, err = e.store.Lanes(ctx)
	}
	if err != nil {
		e.failed("work", err, holdfast.HintRetry)
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

func (e *examination) examineWorkers(alive []store.Run, lanes []store.Lane) {
	if len(alive) > 0 {
		running, places := 0, 0
		for _, r := range alive {
			running, places = running+r.Running, places+r.Concurrency
		}
		e.ok("workers", "%s: %d of %d handlers are busy", counted(int64(len(alive)), "lives", "live"), running, places)
		return
	}
	f := Check{Name: "workers", Severity: Warning, Detail: "none lives", Remedy: holdfast.Hint{Kind: holdfast.HintServe}}
	if text := waiting(lanes); text != "" {
		f.Severity, f.Detail = Failed, "none lives, and "+text
	}
	e.add(f)
}

// examineJanitors judges them by what they leave undone. unfenced counts live runs whose lease is over.
func (e *examination) examineJanitors(ctx context.Context, now time.Time, lanes []store.Lane, unfenced int) {
	checker, ok := e.store.(StoreChecker)
	if !ok {
		e.skipped("janitors", "this store does not tell")
		return
	}
	janitors, err := checker.Janitors(ctx, receiptsOld)
	if err != nil {
		e.failed("janitors", err, holdfast.HintRetry)
		return
	}
	f := Check{Name: "janitors", Severity: OK, Detail: "the process that serves the file is one"}
	if !e.embedded() {
		f.Detail = fmt.Sprintf("one was at work %s ago", janitors.LastTurn.Round(time.Second))
	}
	if late := janitors.LastTurn < 0 || janitors.LastTurn > turnsLate; late && (!e.embedded() || !e.served) {
		f.Severity, f.Detail = Warning, "none is at work"
		f.Remedy = holdfast.Hint{Kind: holdfast.HintServeJanitor}
		if text := waiting(lanes); text != "" {
			f.Severity, f.Detail = Failed, "none is at work, and "+text
		} else if unfenced > 0 {
			f.Severity, f.Detail = Failed, fmt.Sprintf("none is at work, and %s not been fenced", counted(int64(unfenced), "worker that is gone has", "workers that are gone have"))
		}
	}
	e.add(f)
	e.examineSetback(now, janitors.LostCommits)
	if janitors.OutboxEntries > 0 {
		e.add(Check{Name: "receipts", Severity: Failed,
			Detail: fmt.Sprintf("%s not announced, the first for %s", counted(janitors.OutboxEntries, "batch of tasks was", "batches of tasks were"), janitors.Oldest.Round(time.Second)),
			Remedy: holdfast.Advice("see what the janitors log: they publish these as soon as the broker takes them")})
		return
	}
	e.ok("receipts", "no stored task waits to be announced for more than %s", receiptsOld)
}

// examineSetback reports a restore, or another loss of commits, while workers lived.
func (e *examination) examineSetback(now, last time.Time) {
	ago := now.Sub(last)
	if last.IsZero() || ago > setbackShown {
		e.ok("restore", "no worker has found that the store lost commits in the last %s", setbackShown)
		return
	}
	e.add(Check{Name: "restore", Severity: Warning,
		Detail: fmt.Sprintf("%s ago a worker found that the store had lost its newest renewal: a backup was restored while workers ran, or a failover lost commits", ago.Round(time.Second)),
		Remedy: holdfast.Hint{Kind: holdfast.HintRestartWorkers}})
}

// examineLanes looks for tasks that are due and taken by nobody.
func (e *examination) examineLanes(ctx context.Context, alive []store.Run, lanes []store.Lane) {
	before := len(e.Checks)
	for _, lane := range lanes {
		if lane.OldestDue <= dueLong {
			continue
		}
		detail := fmt.Sprintf("%s: %s, the first for %s, and ", lane.Name, counted(lane.Due, "task is due", "tasks are due"), lane.OldestDue.Round(time.Second))
		switch takers := takers(alive, lane.Name); {
		case len(takers) == 0:
			e.add(Check{Name: "lanes", Severity: Failed, Detail: detail + "no live worker takes this lane",
				Remedy: holdfast.Hint{Kind: holdfast.HintServeQueue, Arg: lane.Name}})
		case e.unconsumed(ctx, lane.Name):
			e.add(Check{Name: "lanes", Severity: Failed, Detail: detail + "its queue has no consumer, although " + strings.Join(takers, ", ") + " should be one",
				Remedy: holdfast.Hint{Kind: holdfast.HintReadiness, Arg: takers[0]}})
		}
	}
	if len(e.Checks) == before {
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
func (e *examination) unconsumed(ctx context.Context, lane string) bool {
	if e.broker == nil {
		return false
	}
	queue := e.topology.Main(lane)
	depths, err := e.broker.Depths(ctx, []string{queue})
	depth, exists := depths[queue]
	return err == nil && exists && depth.Consumers == 0
}

// examineDeadLetters looks into the queues that should be empty.
func (e *examination) examineDeadLetters(ctx context.Context) {
	if e.broker == nil {
		e.skipped("dead letters", "only the broker knows, and it cannot be asked from here")
		return
	}
	rescue, quarantine := e.topology.Rescue(), e.topology.Quarantine()
	depths, err := e.broker.Depths(ctx, []string{rescue, quarantine})
	if err != nil {
		e.failed("dead letters", err, holdfast.HintRetry)
		return
	}
	before := len(e.Checks)
	if n := depths[rescue].Ready; n > 0 {
		e.add(Check{Name: "dead letters", Severity: Warning,
			Detail: fmt.Sprintf("%s in the rescue queue, which the broker would have dropped", counted(int64(n), "message waits", "messages wait")),
			Remedy: holdfast.Advice("janitors explain them within seconds; if they stay, see what the janitors log")})
	}
	if n := depths[quarantine].Ready; n > 0 {
		e.add(Check{Name: "dead letters", Severity: Warning,
			Detail: fmt.Sprintf("%s in the quarantine, malformed", counted(int64(n), "message waits", "messages wait")),
			Remedy: holdfast.Hint{Kind: holdfast.HintReadQuarantine, Arg: quarantine}})
	}
	if len(e.Checks) == before {
		e.ok("dead letters", "none in the rescue queue and in the quarantine")
	}
}
