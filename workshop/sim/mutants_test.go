package sim

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/workshop/sim/patch"
	"github.com/holdfastq/holdfast/workshop/slow"
)

var onlyMutants = flag.String("mutants", "", "run only the mutants whose names contain this text")

// mutant is a mistake in the code that the simulator runs.
type mutant struct {
	name     string
	file     string
	old, new string
	also     []patch.Edit // further edits, for code that several guards protect
}

// noKick makes a worker report a loss of its presence only with its next regular renewal.
var noKick = patch.Edit{File: "consumer/lease.go", Old: "\t\tcase <-s.present.Changed():\n", New: ""}

// mutants are mistakes in the code, each of which breaks an invariant. Several guards prevent a wrong early fence, and
// each still prevents it if another one fails. So some mutants weaken two guards together. The guard against crowds is
// not here: it protects against a network fault between many machines, which the simulator does not have.
// TestACrowdIsLeftToItsLeases of package janitor tests it.
var mutants = []mutant{
	{"consumer acks a page before its manifest is confirmed", "consumer/page.go",
		"\terr := p.take(ctx)\n", "\tgo func() { _ = acks.finish(p.tags) }()\n\terr := p.take(ctx)\n", nil},
	{"consumer treats an unknown outcome as a confirm", "consumer/page.go",
		"if outcome != broker.Stored {", "if outcome == broker.Returned {", nil},
	{"consumer drops contended tickets", "consumer/page.go",
		"\t\t\tforeign[claim.Owner] = append(foreign[claim.Owner], ticket)\n", "", nil},
	{"consumer numbers another worker's manifest with its own page", "consumer/page.go",
		"p.manifest(worker, 0, tickets)", "p.manifest(worker, p.number, tickets)", nil},
	{"consumer acks a page that it could not take", "consumer/page.go",
		"\tif err != nil {\n\t\ts.log.WithError(err).Debug(\"page not taken", "\tif err != nil {\n\t\t_ = acks.finish(p.tags)\n\t\ts.log.WithError(err).Debug(\"page not taken", nil},
	{"consumer acks up to the last finished delivery, not the first open one", "consumer/acks.go",
		"for n < len(a.unacked) && a.unacked[n].finished {",
		"for n < len(a.unacked) && slices.ContainsFunc(a.unacked[n:], func(e entry) bool { return e.finished }) {", nil},
	{"consumer moves its cursor before the result is committed", "consumer/execute.go",
		"\ts.results.add(j, &move)", "\ts.pages.finish(j.page, 1)\n\ts.results.add(j, &move)", nil},
	{"worker does not stop itself when its lease expires", "consumer/lease.go",
		"return l.renewed().Add(l.length - l.margin)", "return l.renewed().Add(10 * l.length)", nil},
	{"worker charges a task for the worker's drain", "consumer/execute.go",
		"errors.Is(ended, errStopped):\n\t\treturn holdfast.Stopped(ended)", "errors.Is(ended, errStopped):\n\t\treturn holdfast.Returned(err)", nil},
	{"worker accepts the result of an abandoned handler", "consumer/jobs.go",
		"\tif j.phase == finished {\n\t\treturn false\n", "\tif j.phase == finished && !j.abandoned {\n\t\treturn false\n", nil},
	{"worker does not replace the executor of an abandoned handler", "consumer/stuck.go",
		"\t\t\tjs.freeExecutor()\n", "", nil},
	{"explanation counts a failure too much", "internal/explain/explain.go",
		"\trunning.State = holdfast.Running // a task", "\trunning.Failures++\n\trunning.State = holdfast.Running // a task", nil},
	{"explanation takes the delay for longer than it is", "internal/explain/explain.go",
		"\t\t\te.NextStart = f.Task.NextRunAt\n", "\t\t\te.NextStart = f.Task.NextRunAt.Add(2 * time.Second)\n",
		[]patch.Edit{{File: "internal/explain/explain.go", Old: "add(NotDue, f.Task.NextRunAt,", New: "add(NotDue, f.Task.NextRunAt.Add(2*time.Second),"}}},
	{"explanation takes the delay for shorter than it is", "internal/explain/explain.go",
		"\t\t\te.NextStart = f.Task.NextRunAt\n", "\t\t\te.NextStart = f.Task.NextRunAt.Add(-2 * time.Second)\n",
		[]patch.Edit{{File: "internal/explain/explain.go", Old: "add(NotDue, f.Task.NextRunAt,", New: "add(NotDue, f.Task.NextRunAt.Add(-2*time.Second),"}}},
	{"process keeps the settings of its start", "internal/settings/settings.go",
		"if known == nil || known.stored != stored {", "if known == nil {", nil},
	{"process reads the settings every ten seconds", "internal/settings/settings.go",
		"every = time.Second", "every = 10 * time.Second", nil},
	{"producer deletes outbox entries that are not confirmed", "producer/publish.go",
		"\t\tif outcome != broker.Stored {\n", "\t\tif outcome == broker.Returned {\n", nil},
	{"worker forgets the tickets for which it has no capacity", "consumer/page.go",
		"for part := range slices.Chunk(rest, message.MaxTickets) {", "for part := range slices.Chunk(rest[:0], message.MaxTickets) {", nil},
	{"worker passes tickets on and does not record it", "consumer/page.go",
		"if len(tickets) == 0 {", "if true {", nil},
	{"worker treats unconfirmed tickets in a type queue as confirmed", "consumer/typequeues.go",
		"if i >= len(outcomes) || outcomes[i] != broker.Stored {", "if i >= len(outcomes) {", nil},
	{"worker parks tasks that another worker handles", "consumer/typequeues.go",
		"if !elsewhere || len(", "if elsewhere || len(", nil},
	{"worker does not end the waits for its handlers", "consumer/typequeues.go",
		"range unparkAfter {", "range unparkAfter[:0] {", nil},
	{"janitor leaves tickets in a type queue without a worker", "janitor/typequeues.go",
		"unhandled[name] < unhandledChecks ||", "true ||", nil},
	{"producer publishes one queue at a time", "producer/publish.go",
		"confirmed, err := p.publish(ctx, q.queue, group)", "p.turn <- struct{}{}\n\t\tconfirmed, err := p.publish(ctx, q.queue, group)\n\t\t<-p.turn",
		[]patch.Edit{
			{File: "producer/publish.go", Old: "\tclosed    sync.Once\n", New: "\tclosed    sync.Once\n\tturn chan struct{}\n"},
			{File: "producer/producer.go", Old: "outgoingQueue), closing: make(chan struct{}),", New: "outgoingQueue), closing: make(chan struct{}), turn: make(chan struct{}, 1),"},
		}},
	{"janitor deletes outbox entries that are not confirmed", "janitor/outbox.go",
		"done[i] = allConfirmed(confirmed, e.Tickets)", "done[i] = allConfirmed(confirmed, e.Tickets) || true", nil},
	{"janitor lets all queues wait for one that confirms nothing", "janitor/isolate.go",
		"|| !j.isolated.add(queue) {", "|| queue != \"\" {", []patch.Edit{ // the janitor would wait for the queue a second each time
			{File: "janitor/isolate.go", Old: "context.WithTimeout(ctx, j.limits.isolate)", New: "context.WithTimeout(ctx, 10*j.limits.isolate)"},
		}},
	{"janitor marks tickets before they are published", "janitor/dispatch.go",
		"stored[i] = published[d.Ticket]", "stored[i] = published[d.Ticket] || true", nil},
	{"janitor fences although the store has just been unreachable", "janitor/fence.go",
		"\tif !long {\n\t\treturn nil\n\t}\n\tfenced, err := j.o.Store.Fence(ctx, asked, j.o.FenceGrace, g.need)",
		"\t_ = long\n\tfenced, err := j.o.Store.Fence(ctx, asked, j.o.FenceGrace, 0)", nil},
	{"patrol acks a manifest before the new one is confirmed", "janitor/patrol.go",
		"\tif err := j.publishAll(ctx, messages); err != nil {\n\t\treturn err\n\t}\n", "\t_ = j.publishAll(ctx, messages)\n", nil},
	{"patrol drops the manifests of ended workers", "janitor/patrol.go",
		"case r.manifest.Page > 0 && ", "case known && worker.State != store.WorkerLive, r.manifest.Page > 0 && ", nil},
	{"patrol does not take the tasks of ended workers back", "janitor/rescue.go",
		"\t\t\tabandoned = append(abandoned, ticket.Task)\n", "", nil},
	{"worker does not look for forgotten tasks when the store has lost commits", "consumer/lease.go",
		"\ts.noteHistory(result.History)\n", "", nil},
	{"janitor leaves times that the store computed from a clock that was set back", "janitor/clock.go",
		"setBack, err := j.o.Store.CorrectTimes(ctx)", "setBack, err := false, ctx.Err()", nil},
	{"janitor fences although the store's clock has just leapt", "janitor/fence.go",
		"leap.Abs() > min(maxGap, g.need/5)", "leap < 0 && leap > 0", nil},
	{"a retry keeps the attempt's number", "settle.go",
		"\tif move.To == Ready {\n\t\tmove.NextAttempt++", "\tif move.To == Ready {\n\t\tmove.NextAttempt += 0", nil},
	{"a worker claims into executors that are not free", "consumer/capacity.go",
		"\tif c.used-c.gathering > c.limit {\n\t\treturn store.IntoBuffer\n\t}\n", "", nil},
	{"a crash charges tasks that waited for an executor", "settle.go",
		"if t.Buffered && !policy.AtMostOnce { // the handler may not have started", "if false {", nil},
	{"a worker claims requeued tasks into its buffer", "consumer/capacity.go",
		"\t\tc.unreserve(given-n, store.IntoExecutors)\n\t\tc.addLocked(n - given)\n\t\treturn store.IntoExecutors\n",
		"\t\tc.unreserve(given, store.IntoExecutors)\n\t\tc.addLocked(n - given)\n\t\treturn store.IntoBuffer\n", nil},
	{"messages of a newer version are quarantined", "broker/topology.go",
		"if errors.As(err, new(*message.NewerError)) {", "if false && errors.As(err, new(*message.NewerError)) {", nil},
	{"a crash is counted as a failure", "settle.go",
		"\t\tmove.Crashes++\n", "\t\tmove.Crashes++\n\t\tmove.Failures++\n", nil},
	{"watcher fences without a query to the broker", "presence/watcher.go",
		"present, err := s.o.Broker.Present(probe, s.o.Presence(m.Worker))", "present, err := false, probe.Err()", nil},
	{"watcher fences without a query to the store", "store/memory/presence.go",
		"return s.holder(worker.ID) == nil && !s.renews(worker.ID)", "return true", []patch.Edit{ // all live workers then count as missing together
			{File: "presence/watcher.go", Old: "\tif !together {\n", New: "\tif len(known) >= 0 {\n"},
		}},
	{"store fences early although the session of the worker's renewals exists", "store/memory/presence.go",
		"return s.holder(worker.ID) == nil && !s.renews(worker.ID)", "return s.holder(worker.ID) == nil", nil},
	{"janitor does not query the presence of a worker whose process it does not find", "presence/neighbors.go",
		"workers, err := n.o.Store.Missing(ctx)", "var workers []MissingWorker\n\tfor _, l := range listed {\n\t\tworkers = append(workers, MissingWorker{Worker: l.Worker})\n\t}",
		[]patch.Edit{
			{File: "presence/neighbors.go", Old: "if err != nil || present {", New: "if err != nil || present && false {"},
			{File: "store/memory/presence.go", Old: "!c.store.missing(worker) || !worker.RenewedAt.Equal(a.RenewedAt)", New: "worker.State != store.WorkerLive"},
		}},
	{"watcher does not wait for a renewal, and the worker sends none at once", "presence/watcher.go",
		"if before := known.missingAtBroker; present || !before || !confirmed {", "if present {", []patch.Edit{noKick}},
	{"worker neither reports a lost presence at once nor acquires it again at once", noKick.File, noKick.Old, noKick.New, []patch.Edit{
		{File: "presence/keeper.go", Old: "firstRetry = 50 * time.Millisecond", New: "firstRetry = time.Second"},
	}},
	{"store counts a completion twice", "store/memory/apply.go",
		"\ts.db.moved(task, before)\n", "\ts.db.moved(task, before)\n\tif move.Event == holdfast.EventComplete && task.Attempt == 2 {\n\t\ts.db.moved(task, before)\n\t}\n", nil},
	{"counts a task of an operation twice", "internal/operate/operate.go",
		"\t\t\tstep.Changes = append(step.Changes, requested)\n", "\t\t\tstep.Changes = append(step.Changes, requested)\n\t\t\tif task.Attempt > 3 {\n\t\t\t\tto.Skipped++\n\t\t\t}\n", nil},
	{"counts the first attempts of an operation twice", "store/memory/operations.go",
		"return slices.Contains(own.Judged, id) })", "return false && slices.Contains(own.Judged, id) })", nil},
	{"skips a task of an operation", "internal/operate/operate.go",
		"if to.Cursor = page.Next; page.Next == 0 {", "if to.Cursor = max(0, page.Next-1); page.Next == 0 {", nil},
	{"ends an operation one task before its limit", "internal/operate/operate.go",
		"to.Limit > 0 && to.Visited()+int64(len(step.Changes)) >= to.Limit", "to.Limit > 0 && to.Visited()+int64(len(step.Changes))+1 >= to.Limit", nil},
	{"retries after the operation was cancelled", "internal/operate/operate.go",
		"States: []store.OperationState{store.OperationRunning}", "States: []store.OperationState{store.OperationRunning, store.OperationCancelled}", nil},
	{"a step of an operation overrides a pause or a cancellation", "store/memory/operations.go",
		"o == nil || o.Version != own.From.Version {", "o == nil {", nil},
	{"gate does not stop claims", "store/memory/claim.go",
		" || !statement.admits(task) ||", " ||", nil},
	{"gate closes before the claims in progress have ended", "store/memory/gates.go",
		"c.awaitClaims(ctx, before)", "c.awaitClaims(ctx, before[:0])", nil},
	{"gate blocks tasks although it has opened", "store/memory/work.go",
		"at != nil && at.closed(now)", "at != nil", nil},
	{"gate keeps the mark of the ticket of a blocked task", "store/memory/work.go",
		"\t\t\ttask.TicketedAt = time.Time{}\n\t\t\ttask.endPark()\n\t\t\tc.store.changed(\"Block\"", "\t\t\ttask.endPark()\n\t\t\tc.store.changed(\"Block\"", nil},
	{"gate counts a deferral for a blocked task", "store/memory/work.go",
		"task.DueAt, task.Gate, task.GateAttempt = store.BlockedUntil, gate, task.Attempt\n", "task.DueAt, task.Gate, task.GateAttempt = store.BlockedUntil, gate, task.Attempt\n\t\t\t\ttask.Deferrals++\n", nil},
	{"gate that has opened forgets tasks after the first step of the release", "store/memory/gates.go",
		"if released == limit && limit > 0 {", "if released == limit && limit < 0 {", []patch.Edit{
			{File: "store/memory/gates.go", Old: "return g.lifted && d.blockedAt(g.ID) == 0", New: "return g.lifted"},
		}},
	{"gate that is closed releases its tasks", "store/memory/gates.go",
		"\t\tif s.db.gates[i].lifted {\n", "\t\tif s.db.gates[i].ID > 0 {\n", nil},
	{"limit does not stop claims", "store/memory/gates.go",
		"if needs := k.needs(task); len(needs) > 0 {", "if needs := k.needs(task); len(needs) < 0 {", nil},
	{"limit is set before the claims in progress have ended", "store/memory/limits.go",
		"c.awaitClaims(ctx, before)", "c.awaitClaims(ctx, before[:0])", nil},
	{"limit lets a claim in progress take a task that has lost its permit", "store/memory/gates.go",
		"gated && slices.Contains(c.changed, task.ID)", "gated && false", nil},
	{"limit keeps the permits of attempts that have ended", "store/memory/limits.go",
		"&& !g.lifted && d.used(&p, now) {", "&& !g.lifted {", nil},
	{"limit frees the permits of running attempts", "store/memory/limits.go",
		"\treturn t.State == holdfast.Running\n", "\treturn false\n", nil},
	{"limit gives a permit too much", "internal/permit/permit.go",
		"min(limit, b.Concurrency-b.InUse)", "min(limit, b.Concurrency-b.InUse+1)", nil},
	{"permits fill a queue without free executors", "internal/permit/permit.go",
		"return *room <= 0 })", "return false })", nil},
	{"limit ignores its rate after the first start", "internal/permit/permit.go",
		"\t\tb.Allowed = b.first(now).Add(b.Rate.Interval())\n", "\t\tb.Allowed = time.Time{}\n", nil},
	{"limit stops while the clock is behind the time of its next start", "internal/permit/permit.go",
		"\t\tb.Allowed = latest\n", "_ = latest\n", nil},
	{"limit is not looked at while the clock is behind the time of its next look", "store/memory/repair.go",
		"\t\t\td.correctBuckets(now)\n", "", nil},
	{"several limits give the permit of one", "store/memory/limits.go",
		"for _, ref := range c.Needs {\n\t\t\t\tpermits", "for _, ref := range c.Needs[:min(1, len(c.Needs))] {\n\t\t\t\tpermits", nil},
	{"several limits look only at the one where the task is blocked", "internal/permit/permit.go",
		"allows(now, c) && (!blocked || ref == c.At) {", "allows(now, c) && ref == c.At {", nil},
	{"limit that blocks a task does not wake its bucket", "store/memory/work.go",
		"\t\t\t\tc.store.db.wake(at, task.Bucket, now)\n", "", nil},
	{"limit that has got a permit back does not wake its bucket", "store/memory/limits.go",
		"b.Ref == p.Ref && (b.nextAt.Equal(store.BlockedUntil) || b.reserved.Task != 0) {", "false {", nil},
	{"limit reserves no permit for a task of several limits", "internal/permit/permit.go",
		"if b.keeps(now) && b.Reserved.precedes(c) {", "if false {", nil},
	{"limit keeps a permit for a task that is paused or has ended", "store/memory/limits.go",
		"if t == nil || !t.Blocked() || !t.BlockedAt.Equal(b.reserved.Since) || pauseOf(d.gates, t, now) != 0 {", "if t == nil {", nil},
	{"breaker does not stop claims", "store/memory/limits.go",
		"if !g.givesPermits() || g.lifted {", "if g.Kind != store.GateLimit || g.lifted {", nil},
	{"breaker allows a probe too much", "store/memory/limits.go",
		"return g.Breaker.Probes\n", "return g.Breaker.Probes + 1\n", nil},
	{"breaker allows probes before their time", "internal/permit/permit.go",
		"\tif b.NotBefore.After(now) {\n\t\treturn 0\n\t}\n", "", nil},
	{"breaker stays open while the clock is behind the time of its next probe", "store/memory/repair.go",
		"\t\t\td.correctBreakers(now)\n", "", nil},
	{"breaker looks at its tasks only once", "store/memory/limits.go",
		"\tcase waiting:\n\t\t\trow.nextAt, row.behind = inMicros(next), next.After(g.now)\n", "\tcase waiting && state.NotBefore.IsZero():\n\t\t\trow.nextAt, row.behind = inMicros(next), next.After(g.now)\n", nil},
	{"breaker does not trip at a rate of faults", "internal/breaker/window.go",
		"return faults > 0 &&", "return false &&", nil},
	{"breaker trips below the rate of faults", "internal/breaker/window.go",
		" && faults*100 >= rate*attempts", "", nil},
	{"breaker trips before the minimum number of attempts", "internal/breaker/window.go",
		" && attempts >= minimum", "", nil},
	{"window of a breaker counts no answers", "consumer/targets.go",
		"\t\tw.Add(now, rules.Window, false)\n", "", nil},
	{"window of a breaker never ends", "internal/breaker/window.go",
		"\t\tif b.slot >= oldest {\n", "\t\tif b.slot >= oldest || true {\n", nil},
	{"window of a breaker counts the faults before the breaker tripped", "consumer/targets.go",
		"\t\t\tdelete(ts.windows, target)\n", "", nil},
	{"messages that fail in succession trip a breaker", "consumer/targets.go",
		"\t\tif !mark.Message {\n\t\t\tr.Trip", "\t\tif true {\n\t\t\tr.Trip", nil},
	{"retries of a message count in the window", "consumer/targets.go",
		"!networkWorks || mark.Message && !w.countsMessage(task, now, rules.Window)", "!networkWorks", nil},
	{"probes of a breaker are always the oldest tasks", "internal/permit/permit.go",
		"at >= 0 {\n\t\t\tplaces", "at >= 0 && false {\n\t\t\tplaces", nil},
	{"breaker counts a failure for a blocked task", "store/memory/work.go",
		"task.DueAt, task.Gate, task.GateAttempt = store.BlockedUntil, gate, task.Attempt\n", "task.DueAt, task.Gate, task.GateAttempt = store.BlockedUntil, gate, task.Attempt\n\t\t\t\tif at.Breaker != nil {\n\t\t\t\t\ttask.Failures++\n\t\t\t\t}\n", nil},
	{"explanation does not name a breaker", "internal/explain/explain.go",
		"\t\tif limit.Breaker != nil {\n", "\t\tif limit.Breaker != nil && false {\n", nil},
	{"worker ignores all priorities but the usual one", "consumer/session.go",
		"\t\t_, priority := holdfast.SplitSubqueue(subqueue)\n", "\t\t_, priority := holdfast.SplitSubqueue(subqueue)\n\t\tif priority != holdfast.PriorityNormal {\n\t\t\tcontinue\n\t\t}\n", nil},
	{"sentinels of all priorities take the same way", "janitor/sentinel.go",
		"Queue: j.o.Topology.Main(due[i].Queue),", "Queue: j.o.Topology.Main(holdfast.QueuesOf([]string{due[i].Queue})[0]),", nil},
	{"gate stays closed for a worker whose queue was resumed", "consumer/intake.go",
		"s.paused.awaitOpen(worker, queue)", "<-worker.Done()", nil},
	{"gate blocks no task, and the worker acks its ticket", "consumer/page.go",
		"\tp.block(ctx, blocked)\n", "", nil},
	{"explanation does not name a pause", "internal/explain/explain.go",
		"add(Paused, gate.Until, \"%s\", f.whyPaused(gate))", "_ = gate", nil},
	{"explanation forgets the end of a pause", "internal/explain/explain.go",
		"e.NextStart = latest(e.NextStart, gate.Until)", "_ = gate", nil},
	{"deadline that passes while a task waits is ignored", "consumer/execute.go",
		"case settings.Policy.Expired(*j.task, j.storeTime()):", "case false:", nil},
	{"deadline is taken for earlier than it is", "consumer/execute.go",
		"Expired(*j.task, j.storeTime()):", "Expired(*j.task, j.storeTime().Add(1800*time.Millisecond)):", nil},
	{"deadline that passes while a task waits is counted as a failure", "settle.go",
		"\t\tif cause.event == \"\" { // otherwise", "\t\tif true { // otherwise", nil},
	{"ordered task that runs does not hold its key", "internal/ordered/ordered.go",
		"\tcase holdfast.Ready, holdfast.Running:\n", "\tcase holdfast.Ready:\n", nil},
	{"ordered task that is dead does not hold its key", "internal/ordered/ordered.go",
		"return a.Mark != LetGo, a.Mark == Dooms", "return false, false", nil},
	{"ordered task that is dead holds its key although the policy is to skip it", "internal/ordered/ordered.go",
		"return a.Mark != LetGo, a.Mark == Dooms", "return true, a.Mark == Dooms", nil},
	{"ordered task that is dead does not doom the tasks behind it", "internal/ordered/ordered.go",
		"return a.Mark != LetGo, a.Mark == Dooms", "return a.Mark != LetGo, false", nil},
	{"ordered task that is archived holds its key", "internal/ordered/ordered.go",
		"\tcase holdfast.Dead:\n\t\treturn a.Mark", "\tcase holdfast.Dead, holdfast.Archived:\n\t\treturn a.Mark", nil},
	{"ordered task does not wait if it is new", "internal/ordered/ordered.go",
		"case key.Active || key.Waiting:", "case false:", nil},
	{"ordered task that ends does not start the next one", "store/memory/apply.go",
		"\t\tc.store.moveKeys(keys, now)\n", "\t\t_ = keys\n", nil},
	{"ordered tasks of a locked key are not looked at again", "store/memory/gates.go",
		"started, waiting := c.store.checkKeys(limit, now)", "started, waiting := 0, false", nil},
	{"ordered tasks start from the last one", "store/memory/order.go",
		"\t\trow.active = waiting[0].ID\n\t\ts.startOrdered(waiting[0],", "\t\trow.active = waiting[len(waiting)-1].ID\n\t\ts.startOrdered(waiting[len(waiting)-1],", nil},
	{"ordered task that is retried starts at once", "store/memory/apply.go",
		"if move.Event == holdfast.EventRequeue && task.Ordered {", "if false {", nil},
	{"ordered task that is deleted keeps its key", "store/memory/audit.go",
		"\tif isOrdered {\n", "\tif isOrdered && false {\n", nil},
	{"ordered tasks stay doomed after the dead one was retried", "store/memory/order.go",
		"\trow.doomed = dooms\n", "\trow.doomed = row.doomed || dooms\n", []patch.Edit{{
			File: "store/memory/order.go", Old: "row.doomed && active != nil && active.State == holdfast.Dead", New: "row.doomed && active != nil",
		}}},
	{"ordered task waits for the clock that was set back", "store/memory/order.go",
		"\tif !task.NextRunAt.After(task.CreatedAt) {\n", "\tif false {\n", nil},
	{"worker runs the handler of an ordered task that is doomed", "consumer/execute.go",
		"\tcase j.task.Doomed:\n\t\tunstarted = holdfast.KeyDied()\n\tcase settings", "\tcase settings", nil},
	{"at most once: worker starts a task that has started before", "consumer/execute.go",
		"\tcase settings.Policy.StartedBefore(*j.task):", "\tcase false:", nil},
	{"at most once: a crash makes the task ready again", "settle.go",
		"if policy.AtMostOnce && (move.isRetry() ||", "if policy.AtMostOnce && (move.isRetry() && move.Event != EventCrash ||", nil},
	{"at most once: worker buffers tasks", "consumer/capacity.go",
		"return c.unbuffered == nil || !c.unbuffered()", "return c.limit > 0", nil},
	{"at most once: worker hands back a task whose handler has started", "consumer/execute.go",
		"errors.Is(ended, errStopped):\n\t\treturn holdfast.Stopped(ended)", "errors.Is(ended, errStopped):\n\t\treturn holdfast.Interrupted(ended)", nil},
	{"effects are stored with a failure", "consumer/execute.go",
		"\tif move.Event == holdfast.EventComplete {\n\t\tmove.Effects", "\tif effects != nil {\n\t\tmove.Effects", nil},
	{"effects are stored although the result was refused", "store/memory/apply.go",
		"\t\t\tif accepted[i] {\n", "\t\t\tif c.store.db.task(own[i].Task) != nil {\n", nil},
	{"effects of CompleteTx are not stored", "internal/effect/effect.go",
		"\tmove.Effects = a.effects\n", "", nil},
	{"effects of CompleteTx count as stored although the store has refused them", "internal/effect/effect.go",
		"\tif !accepted {\n", "\tif !accepted && false {\n", nil},
	{"checkpoint of an attempt that does not run is stored", "store/memory/effects.go",
		"task == nil || task.State != holdfast.Running || task.Attempt != by.Attempt || task.Worker != by.Worker", "task == nil", nil},
	{"checkpoint of an earlier attempt is stored", "store/memory/effects.go",
		" || task.Attempt != by.Attempt || task.Worker != by.Worker {", " {", nil},
	{"checkpoint of an attempt that does not run is refused with another error", "internal/effect/effect.go",
		"\tif errors.Is(err, store.ErrFenced) {\n", "\tif errors.Is(err, store.ErrFenced) && false {\n", nil},
	{"checkpoint of an earlier attempt is not read", "internal/effect/effect.go",
		"\t\tvalues[d.Name] = d.Value\n", "\t\t_ = d\n", nil},
	{"task is marked as ticketed although the clock was set back", "store/memory/dispatch_due.go",
		"if outcomes[i] && !task.runnable(now) {", "if false {", nil},
	{"topic gets tickets without slots", "store/memory/dispatch_due.go",
		"if s.db.needsSlot(task) {", "if s.db.needsSlot(task) && false {", nil},
	{"topic gets tickets without slots for ordered tasks", "store/memory/order.go",
		"\tcase task.Topic != \"\": // it is due, and then waits for a slot\n", "", nil},
	{"topic does not get the slots of its ended tasks back", "store/memory/slots.go",
		"row.phase == hasSlot && d.hasEnded(row.task)", "row.phase == hasSlot && d.task(row.task) == nil", nil},
	{"topic loses the slots of tasks whose workers crash", "store/memory/apply.go",
		"\ttask.Requeued = move.Event", "\tif row := s.db.topics.row(task.ID); row != nil && move.Event == holdfast.EventCrash {\n\t\trow.phase = notNow\n\t}\n\ttask.Requeued = move.Event", nil},
	{"topic loses the slots of tickets if the clock is set back", "store/memory/slots.go",
		"task.State == holdfast.Ready && !task.DueAt.IsZero() && earlier(task.DueAt, task.NextRunAt).After(l.now)", "task.State == holdfast.Ready && task.NextRunAt.After(l.now)", nil},
	{"topic stops while the clock is behind the times of its tasks", "store/memory/slots.go",
		"l.store.db.awaitsSlot(task) {", "l.store.db.awaitsSlot(task) && !(task.NextRunAt.After(l.now) && task.NextRunAt.After(task.CreatedAt)) {", nil},
	{"topic gets slots without regard to its weight", "internal/slots/slots.go",
		"f.Turn += 1 / (float64(f.Weight) * levels[f.Priority])", "f.Turn += 1 / levels[f.Priority]", nil},
	{"topic keeps its turn after it got slots", "store/memory/slots.go",
		"\t\t\tt.turn(f.topicName).turn = f.Turn\n", "\t\t\t_ = f.Turn\n", nil},
	{"topic gets more than half of the slots while others wait", "internal/slots/slots.go",
		"\tif q.Several {\n", "\tif q.Several && q.Executors == 0 {\n", nil},
	{"topic takes all slots if it waits alone", "internal/slots/slots.go",
		"max(q.Executors, q.Rates.needed(q.Rates.topic[topic]))-max(1, q.Executors/8))", "max(q.Executors, q.Rates.needed(q.Rates.topic[topic])))", nil},
	{"topic gets more slots than are free", "internal/slots/slots.go",
		"return max(0, q.slots()-held)", "return max(0, q.slots()+1-held)", nil},
	{"topic in which new tasks wait is not looked at", "store/memory/topics.go",
		"\td.topics.arrive(topicName{task.Subqueue(), task.Topic})\n", "", nil},
	{"topic is forgotten although tasks wait", "store/memory/slots.go",
		"f.most > 0 && f.Given == len(f.tasks) {", "f.most > 0 && f.Given > 0 {", nil},
	{"topic has a cursor that passes an open task", "store/memory/topics.go",
		"use.Done = min(use.Done, task.ID-1)", "use.Done = min(use.Done, task.ID)", nil},
	{"topic has a cursor that passes a task that was retried but has never started", "store/memory/topics.go",
		"task.State == holdfast.Ready && task.StartedAt.IsZero() {", "task.State == holdfast.Ready && task.StartedAt.IsZero() && task.Attempt == 1 {", nil},
	{"topic does not know that a person has retried a task", "store/memory/apply.go",
		"holdfast.EventRequeue && task.Topic != \"\" {", "holdfast.EventRequeue && task.Topic == \"\\n\" {", nil},
	{"watcher fences although it has just lost its own presence", "presence/quiet.go",
		"present(q.watch) && present(q.ownPresence) && time.Since(q.since) >= period", "period > 0", nil},
}

// mutantSeeds is the number of seeds within which each mutant must be caught.
const mutantSeeds = 2000

// TestMutants checks that the invariants catch mistakes.
func TestMutants(t *testing.T) {
	slow.Skip(t)
	for _, m := range mutants {
		if !strings.Contains(m.name, *onlyMutants) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			o := build(t, append(m.also, patch.Edit{File: m.file, Old: m.old, New: m.new})...)
			o.Seeds, o.StopFirst = mutantSeeds, true
			for _, s := range outcomes(t, o) {
				if s.Violation != "" {
					t.Logf("caught by seed %d: %s", s.Seed, s.Violation)
					return
				}
			}
			t.Errorf("not caught within %d seeds", mutantSeeds)
		})
	}
}

// A mutant that does not match the code tests nothing. TestMutants finds that too, but takes hours.
func TestMutantsFitTheCode(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		for _, e := range append(m.also, patch.Edit{File: m.file, Old: m.old}) {
			text, err := os.ReadFile(filepath.Join("..", "..", e.File))
			if n := strings.Count(string(text), e.Old); err != nil || e.Old == "" || n != 1 {
				t.Errorf("%s: %s contains the text of the mutant %d times, want once: %v\n%s", m.name, e.File, n, err, e.Old)
			}
		}
	}
}
