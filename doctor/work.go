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
	// maxDue is how long a task may be due without a claim before the doctor warns.
	maxDue = 10 * time.Second
	// maxOutboxAge is an age that no outbox entry reaches while a janitor works.
	maxOutboxAge = time.Minute
	// maxTurnAge is the maximum time since the last turn of a janitor. Janitors take a turn every half minute.
	maxTurnAge = 2 * time.Minute
	// restoreWarning is how long the doctor warns after a restore.
	restoreWarning = 24 * time.Hour
	// maxGateAge is how long a gate may be closed before the doctor warns that people may have forgotten it.
	maxGateAge = 24 * time.Hour
	// maxBreakerAge is how long a target may fail before the doctor warns.
	maxBreakerAge = time.Minute
	// maxKeyAge is how long a dead ordered task may hold its key before the doctor warns that people may have forgotten
	// it.
	maxKeyAge = 24 * time.Hour
	// maxKeys is the maximum number of keys that the doctor reads.
	maxKeys = 100
)

// examineWork checks whether tasks are processed.
func (e *examination) examineWork(ctx context.Context) {
	now, err := e.store.Now(ctx)
	var workers []store.Worker
	if err == nil {
		workers, err = e.store.Workers(ctx, false)
	}
	var queues []store.Queue
	if err == nil {
		queues, err = e.store.Queues(ctx)
	}
	var gates []store.Gate
	if err == nil {
		gates, err = e.store.Gates(ctx)
	}
	var keys []store.OrderedKey
	if err == nil {
		keys, err = e.store.OrderedKeys(ctx, true, maxKeys)
	}
	var topics []store.TopicQueue
	if err == nil {
		topics, err = e.store.TopicQueues(ctx)
	}
	if err != nil {
		e.failed("work", err, holdfast.HintRetry)
		return
	}
	queues = withoutPaused(queues, gates)
	live := slices.DeleteFunc(slices.Clone(workers), func(w store.Worker) bool { return w.LeaseUntil.Before(now) })
	e.examineWorkers(live, queues)
	e.examineJanitors(ctx, now, queues, len(workers)-len(live))
	e.examineQueues(ctx, live, queues)
	e.examineGates(now, gates)
	e.examineKeys(now, keys)
	e.examineTopics(topics)
	e.examineSchedules(ctx, now)
	e.examineSources(ctx, now)
	e.examineBatches(ctx, now)
	e.examineShardJobs(ctx)
	e.examineParked(live, queues)
	e.examineDead(queues)
	e.examineDeadLetters(ctx)
}

// overdue describes the tasks that have been due for longer than maxDue. It returns "" if there are none.
func overdue(queues []store.Queue) string {
	due, oldest := int64(0), time.Duration(0)
	for _, queue := range queues {
		if queue.OldestDue > maxDue {
			due, oldest = due+queue.Due, max(oldest, queue.OldestDue)
		}
	}
	if due == 0 {
		return ""
	}
	return fmt.Sprintf("%s due, the first for %s", counted(due, "task is", "tasks are"), oldest.Round(time.Second))
}

// counted returns n with the phrase for one or for many.
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (e *examination) examineWorkers(live []store.Worker, queues []store.Queue) {
	if len(live) > 0 {
		running, capacity := 0, 0
		for _, w := range live {
			running, capacity = running+w.Running, capacity+w.Concurrency
		}
		e.ok("workers", "%s: %d of %d handlers are busy", counted(int64(len(live)), "live worker", "live workers"), running, capacity)
		return
	}
	c := Check{Name: "workers", Severity: Warning, Detail: "no live worker", Remedy: holdfast.Hint{Kind: holdfast.HintServe}}
	if text := overdue(queues); text != "" {
		c.Severity, c.Detail = Failed, "no live worker, and "+text
	}
	e.add(c)
}

// examineJanitors checks the janitors by the work that they have not done. unfenced is the number of workers that
// the store still lists as live, although their lease has expired.
func (e *examination) examineJanitors(ctx context.Context, now time.Time, queues []store.Queue, unfenced int) {
	checker, ok := e.store.(StoreChecker)
	if !ok {
		e.skipped("janitors", "this store does not report on janitors")
		return
	}
	janitors, err := checker.Janitors(ctx, maxOutboxAge)
	if err != nil {
		e.failed("janitors", err, holdfast.HintRetry)
		return
	}
	c := Check{Name: "janitors", Severity: OK, Detail: "the process that serves the file has a janitor"}
	if !e.embedded() {
		c.Detail = fmt.Sprintf("a janitor was active %s ago", janitors.LastTurn.Round(time.Second))
	}
	if late := janitors.LastTurn < 0 || janitors.LastTurn > maxTurnAge; late && (!e.embedded() || !e.served) {
		c.Severity, c.Detail = Warning, "no janitor is active"
		c.Remedy = holdfast.Hint{Kind: holdfast.HintServeJanitor}
		if text := overdue(queues); text != "" {
			c.Severity, c.Detail = Failed, "no janitor is active, and "+text
		} else if unfenced > 0 {
			c.Severity = Failed
			c.Detail = fmt.Sprintf("no janitor is active, and %s not been fenced",
				counted(int64(unfenced), "worker with an expired lease has", "workers with an expired lease have"))
		}
	}
	e.add(c)
	e.examineDuties(janitors.Failing)
	e.examineRestore(now, janitors.LostCommits)
	if janitors.OutboxEntries > 0 {
		e.add(Check{Name: "outbox entries", Severity: Failed,
			Detail: fmt.Sprintf("%s not been published, the oldest for %s", counted(janitors.OutboxEntries, "outbox entry has", "outbox entries have"), janitors.Oldest.Round(time.Second)),
			Remedy: holdfast.Advice("look at the logs of the janitors, which publish these entries as soon as the broker takes messages")})
		return
	}
	e.ok("outbox entries", "no outbox entry is older than %s", maxOutboxAge)
}

// maxDuties is the maximum number of failing duties that the doctor names.
const maxDuties = 10

// examineDuties names the duties that fail in any process.
func (e *examination) examineDuties(failing []store.DutyFailure) {
	for _, f := range failing[:min(len(failing), maxDuties)] {
		e.add(Check{Name: "duties", Severity: Failed,
			Detail: fmt.Sprintf("the duty %q of the janitor %s has failed for %s: %s", f.Duty, f.Janitor, f.For.Round(time.Second), f.Error),
			Remedy: holdfast.Advice("remove the cause that the error names; the janitor tries again by itself, and its log has the details")})
	}
	switch more := len(failing) - maxDuties; {
	case len(failing) == 0:
		e.ok("duties", "no janitor reports a duty that fails")
	case more > 0:
		e.add(Check{Name: "duties", Severity: Failed, Detail: counted(int64(more), "more duty fails", "more duties fail"),
			Remedy: holdfast.Advice("look at the logs of the janitors")})
	}
}

// examineRestore warns if the database has lost commits while workers were live, for example by a restore.
func (e *examination) examineRestore(now, last time.Time) {
	ago := now.Sub(last)
	if last.IsZero() || ago > restoreWarning {
		e.ok("restore", "no worker has found lost commits in the last %s", restoreWarning)
		return
	}
	e.add(Check{Name: "restore", Severity: Warning,
		Detail: fmt.Sprintf("%s ago a worker found that the store had lost its newest renewal: a backup was restored while workers ran, or a failover lost commits", ago.Round(time.Second)),
		Remedy: holdfast.Hint{Kind: holdfast.HintRestartWorkers}})
}

// examineQueues checks that each queue with overdue tasks has a worker that consumes it.
func (e *examination) examineQueues(ctx context.Context, live []store.Worker, queues []store.Queue) {
	before := len(e.Checks)
	for _, queue := range queues {
		if queue.OldestDue <= maxDue {
			continue
		}
		detail := fmt.Sprintf("%s: %s, the first for %s, and ", queue.Subqueue(), counted(queue.Due, "task is due", "tasks are due"), queue.OldestDue.Round(time.Second))
		switch names := consumersOf(live, queue.Name); {
		case len(names) == 0:
			e.add(Check{Name: "queues", Severity: Failed, Detail: detail + "no live worker consumes this queue",
				Remedy: holdfast.Hint{Kind: holdfast.HintServeQueue, Arg: queue.Name}})
		case e.unconsumed(ctx, queue.Subqueue()):
			e.add(Check{Name: "queues", Severity: Failed, Detail: detail + "its main queue has no consumer, although " + strings.Join(names, ", ") + " should consume it",
				Remedy: holdfast.Hint{Kind: holdfast.HintReadiness, Arg: names[0]}})
		}
	}
	if len(e.Checks) == before {
		e.ok("queues", "every queue with overdue tasks has a worker")
	}
}

// withoutPaused returns the queues with no due tasks in paused queues, because no worker has to claim these tasks.
func withoutPaused(queues []store.Queue, gates []store.Gate) []store.Queue {
	queues = slices.Clone(queues)
	for i := range queues {
		if slices.ContainsFunc(gates, func(g store.Gate) bool { return g.Subject == store.Subject{Queue: queues[i].Name} }) {
			queues[i].Due, queues[i].OldestDue = 0, 0
		}
	}
	return queues
}

// examineGates warns of gates that have been closed for more than a day, and of breakers that tripped more than a minute
// ago.
func (e *examination) examineGates(now time.Time, gates []store.Gate) {
	before := len(e.Checks)
	for _, gate := range gates {
		closed := now.Sub(gate.ClosedAt)
		if closed <= maxGateAge && (gate.Kind != store.GateBreaker || closed <= maxBreakerAge) {
			continue
		}
		detail := fmt.Sprintf("%s has paused the %s for %s", gate.Name, gate.Subject, closed.Round(time.Second))
		if gate.Kind == store.GateBreaker {
			detail = fmt.Sprintf("the %s has failed for %s, and only probes start until it works", gate.Subject, closed.Round(time.Second))
		}
		if gate.Reason != "" {
			detail += fmt.Sprintf(" (%s)", gate.Reason)
		}
		if gate.Blocked > 0 {
			detail += ", and " + counted(int64(gate.Blocked), "task waits", "tasks wait") + " there"
		}
		e.add(Check{Name: "gates", Severity: Warning, Detail: detail, Remedy: gate.ResumeHint()})
	}
	if len(e.Checks) == before {
		e.ok("gates", "%s closed, none for more than a day, and no breaker for more than a minute", counted(int64(len(gates)), "gate is", "gates are"))
	}
}

// examineKeys warns of keys whose dead task has prevented later ordered tasks from starting for more than a day.
func (e *examination) examineKeys(now time.Time, keys []store.OrderedKey) {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k store.OrderedKey) bool {
		return now.Sub(k.Since) <= maxKeyAge || k.Waiting == 0 && !k.Doomed
	})
	if len(keys) == 0 {
		e.ok("ordered keys", "no dead task has blocked its key for more than a day")
		return
	}
	oldest := slices.MinFunc(keys, func(a, b store.OrderedKey) int { return a.Since.Compare(b.Since) })
	detail := fmt.Sprintf("task %s has been dead for %s and blocks the key %q", oldest.Active, now.Sub(oldest.Since).Round(time.Second), oldest.Key)
	if oldest.Doomed {
		detail += ", and later ordered tasks of the key die without an attempt"
	} else {
		detail += ", and " + counted(int64(oldest.Waiting), "task waits", "tasks wait") + " behind it"
	}
	if others := int64(len(keys) - 1); others > 0 {
		detail += "; " + counted(others, "other key is blocked", "other keys are blocked") + " for more than a day, too"
	}
	e.add(Check{Name: "ordered keys", Severity: Warning, Detail: detail,
		Remedy: holdfast.Hint{Kind: holdfast.HintBlockedKey, Arg: oldest.Active.String()}})
}

// examineTopics warns of tasks that wait for slots of queues without executors.
func (e *examination) examineTopics(topics []store.TopicQueue) {
	before := len(e.Checks)
	for _, q := range topics {
		if q.Executors == 0 {
			e.add(Check{Name: "topics", Severity: Warning,
				Detail: fmt.Sprintf("%s: tasks of %s wait for slots, and no live worker takes the queue",
					holdfast.Subqueue(q.Queue, q.Priority), counted(int64(q.Topics), "topic", "topics")),
				Remedy: holdfast.Hint{Kind: holdfast.HintServe}})
		}
	}
	if len(e.Checks) == before {
		e.ok("topics", "janitors know of no task that waits for a slot of a queue without workers")
	}
}

// examineParked warns of tasks that are parked because no live worker has a handler for their type.
func (e *examination) examineParked(live []store.Worker, queues []store.Queue) {
	known := len(live) > 0
	handled := make(map[string]bool)
	for _, w := range live {
		known = known && w.Types != nil // without types the handlers are unknown
		for _, kind := range w.Types {
			handled[kind] = true
		}
	}
	before := len(e.Checks)
	for _, queue := range queues {
		for _, kind := range queue.ParkedTypes {
			if known && !handled[kind] {
				e.add(Check{Name: "parked tasks", Severity: Warning,
					Detail: fmt.Sprintf("%s: tasks of the type %q are parked, and no live worker has a handler for it", queue.Subqueue(), kind),
					Remedy: holdfast.Hint{Kind: holdfast.HintHandleType, Arg: kind}})
			}
		}
	}
	if len(e.Checks) == before {
		e.ok("parked tasks", "no task is parked for lack of a handler")
	}
}

// examineDead warns of dead tasks, which only a person can retry.
func (e *examination) examineDead(queues []store.Queue) {
	dead, in := int64(0), ""
	for _, queue := range queues {
		if queue.Dead > 0 && (in == "" || in == queue.Name) {
			in = queue.Name
		} else if queue.Dead > 0 {
			in = "several queues"
		}
		dead += queue.Dead
	}
	if dead == 0 {
		e.ok("dead tasks", "no task is dead")
		return
	}
	e.add(Check{Name: "dead tasks", Severity: Warning, Detail: counted(dead, "task is", "tasks are") + " dead, in " + in,
		Remedy: holdfast.Hint{Kind: holdfast.HintListDead}})
}

// consumersOf returns the names of the workers that should consume a queue.
func consumersOf(live []store.Worker, queue string) (names []string) {
	for _, w := range live {
		if !w.Draining && (len(w.Queues) == 0 || slices.Contains(w.Queues, queue)) {
			names = append(names, w.Name)
		}
	}
	return names
}

// unconsumed reports whether the main queue of a queue exists and has no consumer.
func (e *examination) unconsumed(ctx context.Context, queue string) bool {
	if e.broker == nil {
		return false
	}
	mainQueue := e.topology.Main(queue)
	depths, err := e.broker.Depths(ctx, []string{mainQueue})
	depth, exists := depths[mainQueue]
	return err == nil && exists && depth.Consumers == 0
}

// examineDeadLetters checks that the rescue queue and the quarantine are empty.
func (e *examination) examineDeadLetters(ctx context.Context) {
	if e.broker == nil {
		e.skipped("dead letters", "the broker cannot be queried from this process")
		return
	}
	rescue, quarantine, unread := e.topology.Rescue(), e.topology.Quarantine(), e.topology.Unread()
	depths, err := e.broker.Depths(ctx, []string{rescue, quarantine, unread})
	if err != nil {
		e.failed("dead letters", err, holdfast.HintRetry)
		return
	}
	before := len(e.Checks)
	if n := depths[rescue].Ready; n > 0 {
		e.add(Check{Name: "dead letters", Severity: Warning,
			Detail: fmt.Sprintf("%s in the rescue queue, which the broker would have dropped", counted(int64(n), "message waits", "messages wait")),
			Remedy: holdfast.Advice("janitors handle them within seconds; if they stay, look at the logs of the janitors")})
	}
	if n := depths[quarantine].Ready; n > 0 {
		e.add(Check{Name: "dead letters", Severity: Warning,
			Detail: fmt.Sprintf("%s in the quarantine", counted(int64(n), "malformed message waits", "malformed messages wait")),
			Remedy: holdfast.Hint{Kind: holdfast.HintReadQuarantine, Arg: quarantine}})
	}
	if n := depths[unread]; n.Ready > 0 && n.Consumers == 0 {
		e.add(Check{Name: "dead letters", Severity: Warning,
			Detail: fmt.Sprintf("%s in the unread queue, from a newer version", counted(int64(n.Ready), "message waits", "messages wait")),
			Remedy: holdfast.Advice("start a janitor of the newer version; this version cannot read them")})
	}
	if len(e.Checks) == before {
		e.ok("dead letters", "no message in the rescue, quarantine or unread queue")
	}
}
